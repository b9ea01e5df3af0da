// Package script plays stories in tests: commands with the output they have.
package script

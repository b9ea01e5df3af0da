// Package base holds the identifiers, batch-time arithmetic and error types
// that every other package shares. It imports the standard library only and
// starts no goroutine.
package base

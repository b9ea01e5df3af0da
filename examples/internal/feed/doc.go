// Package feed gives the examples something to read: a TCP server in their own
// process. A real job reads from elsewhere and needs nothing like it.
package feed

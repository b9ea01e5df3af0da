// Package lint checks the rules of this repository that a compiler does not:
// which package may import which, documentation of exported names, no init
// functions or package-level loggers, no real sleeps in tests, no functions of
// package path for names of files, no words that belong to one machine or to
// unfinished work.
//
// A rule is a function from a [tree] of files to findings, without IO, so that
// each has a test which shows it catching a violation. Those tests always run.
// The run over the repository itself, together with gofumpt, vet and
// staticcheck, takes longer and happens only in "make lint", which sets
// TIDEMILL_LINT=1.
//
// The package imports no other package of the module and none imports it.
package lint

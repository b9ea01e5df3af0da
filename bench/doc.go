// Bench prints what the engine costs beside plain hand-written loops, as CPU
// time in one run: only ratios count, since machines differ and are shared.
//
//	go run ./bench            # all
//	go run ./bench -run words # one
//
// Each pair is measured in turn, engine and loop, several rounds; the figure is
// the median of the rounds' ratios. CPU time is user and system time of the
// process, with GOMAXPROCS 1. A figure over its limit is marked and makes the
// exit code 1.
//
// The logs (wal-...) are measured by the time that passes, as a share of the
// loop's speed, in the directory for temporary files ($TMPDIR).
// durable-interval looks for the smallest batch interval that a job with all
// its logs holds for as long as -hold says.
package main

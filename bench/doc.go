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
package main

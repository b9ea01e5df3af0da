package main

import ("testing";"runtime")

func TestSmallProf(t *testing.T) {
	runtime.GOMAXPROCS(1)
	tt := newTouches(100000, 1000, 2000)
	r, err := runState(tt, mapJob)
	t.Log(r, err)
}
func TestEmptyProf(t *testing.T) {
	runtime.GOMAXPROCS(1)
	for range 4 { us, err := emptyBatches(); t.Log(us, err) }
}

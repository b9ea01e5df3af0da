package driver

// PlacesKnown counts the data sets of which the scheduler knows where they are.
func (d *Driver) PlacesKnown() int {
	n := make(chan int, 1)
	if !d.sched.do(func() { n <- len(d.sched.places) }) {
		return 0
	}
	return <-n
}

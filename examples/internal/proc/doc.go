// Package proc lets the tests of an example run it as its users do: as a
// process with a command line, signals, output and an exit code.
//
//	func TestMain(m *testing.M) { proc.Main(m, main) }
//
//	func TestItRuns(t *testing.T) {
//		p := proc.Start(t, "-for", "1s")
//		if end := p.Wait(); end.Code != 0 {
//			t.Error(end)
//		}
//	}
//
// The process is the test binary itself, so nothing is built twice and, under
// the race detector, the process is checked too.
package proc

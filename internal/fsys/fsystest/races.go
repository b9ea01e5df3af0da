package fsystest

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"
)

// races are the rules of what happens when many want one name at once.
func races() []rule {
	return []rule{
		{"OneOfManyCreatesWins", func(s scene) {
			for round := range 20 {
				name := fmt.Sprint("file", round)
				winner := race(s, 8, func(i int) error {
					w, err := s.FS.Create(s.at(name))
					if err != nil {
						return err
					}
					_, err = fmt.Fprint(w, i)
					return errors.Join(err, w.Close())
				})
				s.wantFile(name, fmt.Sprint(winner))
			}
		}},

		{"OneOfManyMkdirsWins", func(s scene) {
			for round := range 20 {
				race(s, 8, func(int) error { return s.FS.Mkdir(s.at(fmt.Sprint("dir", round))) })
			}
		}},

		{"OneOfManyRenamesToOneNameWins", func(s scene) {
			const n = 4
			for round := range 40 {
				dir := fmt.Sprint(round)
				s.must(s.FS.Mkdir(s.at(dir)))
				from := func(i int) string { return fmt.Sprint(dir, "/from", i) }
				want := map[string]string{}
				for i := range n {
					name, mark := from(i), from(i)
					if round%2 == 1 { // directories
						s.must(s.FS.Mkdir(s.at(name)))
						mark = fmt.Sprint(name, "/in", i)
					}
					s.write(mark, fmt.Sprint(i))
					want[mark] = fmt.Sprint(i)
				}
				winner := race(s, n, func(i int) error { return s.FS.Rename(s.at(from(i)), s.at(dir+"/to")) })
				for i := range n {
					at := from(i)
					if i == winner {
						at = dir + "/to"
					}
					if round%2 == 1 {
						at = fmt.Sprint(at, "/in", i)
					}
					s.wantFile(at, fmt.Sprint(i))
				}
				if got := len(s.entries(dir)); got != n {
					s.Errorf("%d names are left, want %d", got, n)
				}
			}
		}},

		{"MkdirAllByManyIsFine", func(s scene) {
			var wg sync.WaitGroup
			start := make(chan struct{})
			for range 8 {
				wg.Go(func() {
					<-start
					if err := s.FS.MkdirAll(s.at("a/b/c/d")); err != nil {
						s.Error(err)
					}
				})
			}
			close(start)
			wg.Wait()
			want := map[string]string{"a/": "", "a/b/": "", "a/b/c/": "", "a/b/c/d/": ""}
			if diff := cmp.Diff(want, s.tree()); diff != "" {
				s.Errorf("tree (-want +got):\n%s", diff)
			}
		}},
	}
}

// race runs n calls at once, of which one must succeed, the others fail with
// fs.ErrExist. It returns which did.
func race(s scene, n int, call func(i int) error) int {
	s.Helper()
	var won, winner atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			switch err := call(i); {
			case err == nil:
				won.Add(1)
				winner.Store(int64(i))
			case !errors.Is(err, fs.ErrExist):
				s.Errorf("a loser's error is %v, want %v", err, fs.ErrExist)
			}
		})
	}
	close(start)
	wg.Wait()
	if won.Load() != 1 {
		s.Errorf("%d calls succeeded, want 1", won.Load())
	}
	return int(winner.Load())
}

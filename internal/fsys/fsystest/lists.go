package fsystest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/fsys"
)

func lists() []rule {
	return []rule{
		{"ListIsSortedAndDescribes", func(s scene) {
			s.fill()
			before := time.Now()
			want := []fsys.Info{{Name: "empty", Dir: true}, {Name: "file", Size: 7}, {Name: "full", Dir: true}}
			if m, ok := s.modTimes(); ok {
				before = time.Unix(1_700_000_000, 0)
				for i := range want {
					s.must(m.SetModTime(s.at(want[i].Name), before))
					want[i].ModTime = before
				}
			}
			infos, err := s.FS.List(s.root)
			s.must(err)
			for i := range infos {
				in, err := s.FS.Stat(s.at(infos[i].Name))
				s.must(err)
				if diff := cmp.Diff(infos[i], in); diff != "" {
					s.Errorf("List and Stat differ (-list +stat):\n%s", diff)
				}
				if _, ok := s.modTimes(); !ok {
					if off := infos[i].ModTime.Sub(before).Abs(); off > time.Hour {
						s.Errorf("%s: ModTime %v, %v away from the clock", in.Name, in.ModTime, off)
					}
					infos[i].ModTime = time.Time{}
				}
			}
			if diff := cmp.Diff(want, infos); diff != "" {
				s.Errorf("List (-want +got):\n%s", diff)
			}
			if infos, err := s.FS.List(s.at("empty")); len(infos) != 0 || err != nil {
				s.Errorf("List of an empty directory: %v, %v", infos, err)
			}
		}},

		// More than the page of any listing that comes in pages.
		{"ListIsCompleteWithManyEntries", func(s scene) {
			want := []string{"file", "A", "a b", "a%20b", "a+b", "a#b", "ä", "~"}
			s.write("file", "")
			for _, name := range want[1:] {
				s.must(s.FS.Mkdir(s.at(name)))
			}
			for i := range 1100 {
				name := fmt.Sprintf("d%d", i)
				want = append(want, name)
				s.must(s.FS.Mkdir(s.at(name)))
			}
			slices.Sort(want)
			infos, err := s.FS.List(s.root)
			s.must(err)
			if !slices.IsSortedFunc(infos, byName) {
				s.Error("the list is not sorted")
			}
			var got []string
			for _, in := range infos {
				got = append(got, in.Name)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				s.Errorf("List (-want +got):\n%s", diff)
			}
		}},

		{"WriteMovesModTime", func(s scene) {
			m, ok := s.modTimes()
			if !ok {
				s.Skip("modification times can't be set here")
			}
			s.fill()
			old := time.Unix(1_700_000_000, 0)
			w, err := s.FS.Create(s.at("log"))
			s.must(err)
			s.must(m.SetModTime(s.at("log"), old))
			s.must(m.SetModTime(s.at("empty"), old))
			_, err = w.Write([]byte("x"))
			s.must(err)
			s.must(w.Close())
			s.must(s.FS.Mkdir(s.at("empty/new")))
			for _, n := range []string{"log", "empty"} {
				if in, err := s.FS.Stat(s.at(n)); !in.ModTime.After(old) || err != nil {
					s.Errorf("%s: ModTime %v, %v, want one after %v", n, in.ModTime, err, old)
				}
			}
		}},
	}
}

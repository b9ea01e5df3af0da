package fsys_test

import (
	"testing"

	"github.com/tidemill/tidemill/internal/fsys"
)

// placed knows one host, unless it is away.
type placed struct {
	*fsys.Mem
	away bool
}

func (*placed) Hosts(name string, _, _ int64) ([]string, error) { return []string{name}, nil }
func (p *placed) Away(string) bool                              { return p.away }

func TestPlacedOfLeadsToTheFileSystemThatKnowsHosts(t *testing.T) {
	p := &placed{Mem: fsys.NewMem()}
	r := fsys.NewRouter(fsys.NewMem(), map[string]func(string) (fsys.FS, error){
		"near": func(string) (fsys.FS, error) { return p, nil },
	})
	if got := fsys.PlacedOf(r, "near://x/a"); got != fsys.Placed(p) {
		t.Errorf("%v of a name of it", got)
	}
	for _, name := range []string{"/local", "other://x/a", ""} {
		if got := fsys.PlacedOf(r, name); got != nil {
			t.Errorf("%v of %q", got, name)
		}
	}
	p.away = true
	if got := fsys.PlacedOf(r, "near://x/a"); got != nil {
		t.Errorf("%v, which is away", got)
	}
}

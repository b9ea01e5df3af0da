package conformance

import (
	"path"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/fsys"
)

// directories has the scenes about what a job's directory holds.
func directories() map[string]func(s *scene) {
	return map[string]func(s *scene){
		"context from a directory that does not exist":                   func(s *scene) { s.from(fsys.NewMem()) },
		"context from an empty directory":                                func(s *scene) { s.from(s.emptyDir()) },
		"context from a directory with one corrupt file checkpoint-1000": func(s *scene) { s.from(s.corruptDir()) },
		"getOrCreate on a missing directory":                             func(s *scene) { s.getOrCreate(fsys.NewMem()) },
		"getOrCreate on a empty directory":                               func(s *scene) { s.getOrCreate(s.emptyDir()) },
		"getOrCreate on a corrupt directory":                             func(s *scene) { s.getOrCreate(s.corruptDir()) },
		"queueStream, checkpoint directory, 1 batch, recover":            recoverQueue,
	}
}

// from makes a context with a directory and starts it, which is when the
// directory is read. One that can't be started is no context.
func (s *scene) from(fs *fsys.Mem) {
	s.options = []tidemill.ContextOption{tidemill.WithFS(fs), tidemill.WithDir(jobDir)}
	if s.build(s.plain) && !s.start("build") {
		s.ssc = nil
	}
}

// getOrCreate is from for a context whose state is asked for before it starts.
func (s *scene) getOrCreate(fs *fsys.Mem) {
	s.from(fs)
	if s.ssc != nil {
		s.asked = tidemill.Initialized.String()
		s.result = map[string]bool{"created": !s.ssc.Recovered().Recovered}
	}
}

func (s *scene) emptyDir() *fsys.Mem {
	fs := fsys.NewMem()
	if err := fs.MkdirAll(jobDir); err != nil {
		s.t.Fatal(err)
	}
	return fs
}

// usedDir is what a job of one batch leaves.
func (s *scene) usedDir(build func(ssc *tidemill.StreamingContext) error) *fsys.Mem {
	fs := fsys.NewMem()
	s.options = []tidemill.ContextOption{tidemill.WithFS(fs), tidemill.WithDir(jobDir)}
	s.runs(1, build)
	s.stop()
	return fs
}

// corruptDir has a wrong byte in every file of a job's log.
func (s *scene) corruptDir() *fsys.Mem {
	fs := s.usedDir(s.plain)
	var damage func(dir string)
	damage = func(dir string) {
		infos, err := fs.List(dir)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, in := range infos {
			name := path.Join(dir, in.Name)
			if in.Dir {
				damage(name)
			} else if in.Size > 0 {
				change(s.t, fs, name, func(b []byte) []byte { b[len(b)/2] ^= 0x80; return b })
			}
		}
	}
	damage(path.Join(jobDir, "log"))
	s.says = []string{jobDir}
	return fs
}

// recoverQueue goes on with a queue stream: what was planned is in the log, what
// was only queued is the program's own affair.
func recoverQueue(s *scene) {
	build := func(ssc *tidemill.StreamingContext) error {
		q := &tidemill.Queue[int64]{}
		q.Push(1, 2)
		print(tidemill.QueueStream(ssc, "queue", q))
		return nil
	}
	s.usedDir(build)
	if s.build(build) && s.start("recover") && !s.ssc.Recovered().Recovered {
		s.t.Error("the job did not go on with what its directory holds")
	}
	s.batches(1)
}

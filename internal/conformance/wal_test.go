package conformance

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
	"github.com/tidemill/tidemill/wal"
)

// walStep is a step of a script about a write-ahead log, with its result.
type walStep struct {
	Op     string `json:"op"`
	TimeMS int64  `json:"time_ms"`
	Data   string `json:"data"`
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Hex    string `json:"hex"`

	CutBytes  int64 `json:"bytes_off_the_end"`
	ToBytes   int64 `json:"to_bytes"`
	Threshold int64 `json:"threshold_ms"`

	Error   any      `json:"error"`
	Records []string `json:"records"`
	Written string   `json:"data_written"`
	Record  string   `json:"record"`
	Left    []string `json:"files_left"`
	Files   []struct {
		Name  string `json:"name"`
		Bytes int64  `json:"bytes"`
	} `json:"files"`
}

func (c *golden) walSteps() (steps []walStep) {
	c.get("steps", &steps)
	return steps
}

// The lines of steps. Names and lengths of files are a matter of the format: a
// file is known by when its first record came.

func (o outcome) wrote(data string, file int, failed bool) {
	if failed {
		o.add("steps", "write %q: error", data)
		return
	}
	o.add("steps", "write %q: file %d", data, file)
}

func (o outcome) read(records []string, failed bool) {
	line := "read " + text(append([]string{}, records...))
	if failed {
		line += ", then an error"
	}
	o.add("steps", "%s", line)
}

func (o outcome) readOne(written, read string) {
	o.add("steps", "read the record %q: %q", written, read)
}
func (o outcome) listed(files int) { o.add("steps", "%d files", files) }
func (o outcome) cleaned(left int) { o.add("steps", "clean: %d files left", left) }

func sparkWAL(c *golden) outcome {
	o := outcome{}
	var names []any
	c.get("names", &names)
	for _, n := range names {
		o.add("names", "%s", text(n))
	}
	var files []string
	for _, s := range c.walSteps() {
		switch s.Op {
		case "write":
			if s.Error == nil && !slices.Contains(files, s.File) {
				files = append(files, s.File)
			}
			o.wrote(s.Data, slices.Index(files, s.File)+1, s.Error != nil)
		case "read":
			o.read(s.Records, s.Error != nil)
		case "readone":
			o.readOne(s.Written, s.Record)
		case "clean":
			o.cleaned(len(s.Left))
		case "list":
			o.listed(len(s.Files))
		}
	}
	return o
}

// walDir is where the logs of a case are, logName the one that it is about.
const (
	walDir  = "/logs"
	logName = "log"
)

// written is a record of a case and where ours and Spark's are.
type written struct {
	data   string
	file   string // Spark's
	offset int64  // in it
	h      base.Handle
}

// logPlay plays a script on a store with one log.
type logPlay struct {
	t     *testing.T
	c     *golden
	fs    *fsys.Mem
	epoch base.Epoch
	store *wal.Store
	w     *wal.StoreWriter

	all      []written // not released
	segments []base.Handle

	damaged string   // file
	intact  []string // records of it before the damage
}

func runWAL(t *testing.T, c *golden) outcome {
	o := outcome{}
	tidetest.Run(t, func(t *testing.T) {
		p := &logPlay{t: t, c: c, fs: fsys.NewMem()}
		p.open()
		if c.Op == "wal_names" {
			p.names(o)
		}
		for _, s := range c.walSteps() {
			p.step(s, o)
		}
		p.close()
	})
	return o
}

func (p *logPlay) open() {
	var err error
	p.store, err = wal.OpenStore(wal.StoreConfig{
		Dir:    walDir,
		Config: wal.Config{FS: p.fs, SegmentAge: time.Duration(p.c.num("rolling_interval_s", 0)) * time.Second},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	live := make([]base.Handle, len(p.all))
	for i, r := range p.all {
		live[i] = r.h
	}
	if _, err := p.store.Recover(p.t.Context(), live); err != nil {
		p.t.Fatal(err)
	}
	p.epoch++
	if p.w, err = p.store.Writer(p.t.Context(), logName, p.epoch); err != nil {
		p.t.Fatal(err)
	}
}

func (p *logPlay) close() {
	if err := errors.Join(p.w.Close(), p.store.Close()); err != nil {
		p.t.Error(err)
	}
}

func (p *logPlay) step(s walStep, o outcome) {
	switch s.Op {
	case "write":
		p.write(s, o)
	case "close":
		p.close()
	case "reopen":
		p.close()
		p.open()
	case "read":
		p.read(o)
	case "readone":
		i := slices.IndexFunc(p.all, func(r written) bool { return r.data == s.Written })
		b, err := p.store.Read(p.t.Context(), p.all[i].h)
		if err != nil {
			p.t.Error(err)
		}
		o.readOne(s.Written, shown(b))
	case "clean":
		p.clean(s.Threshold)
		o.cleaned(len(p.files()))
	case "list":
		o.listed(len(p.files()))
	case "create":
		p.create(s)
	case "delete":
		if err := p.fs.Remove(p.path(s.File)); err != nil {
			p.t.Fatal(err)
		}
	default:
		p.damage(s)
	}
}

func (p *logPlay) write(s walStep, o outcome) {
	// The clock does not go back; a write at an earlier time is one at this.
	passUntil(s.TimeMS)
	h, err := p.w.Append(p.t.Context(), []byte(s.Data))
	if err != nil {
		if !errors.Is(err, wal.ErrClosed) {
			p.t.Error(err)
		}
		o.wrote(s.Data, 0, true)
		return
	}
	p.all = append(p.all, written{data: s.Data, file: s.File, offset: s.Offset, h: h})
	file := base.Handle{Epoch: h.Epoch, Segment: h.Segment}
	if !slices.Contains(p.segments, file) {
		p.segments = append(p.segments, file)
	}
	o.wrote(s.Data, slices.Index(p.segments, file)+1, false)
	if p.c.Params["close_file_after_write"] == true {
		if err := p.w.Roll(p.t.Context()); err != nil {
			p.t.Error(err)
		}
	}
}

// read reads all epochs in order.
func (p *logPlay) read(o outcome) {
	records, err := p.scan(false)
	if err == nil {
		o.read(records, false)
		p.noticesLoss(records)
		return
	}
	o.read(records, true)
	if !errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), "tidemill wal verify "+walDir) {
		p.t.Errorf("not the error of damage: %v", err)
	}
	p.passesOver()
}

// passesOver holds that damage costs nothing of other files: a read that is told
// to pass over it gives all their records, and of the damaged one what is before.
func (p *logPlay) passesOver() {
	records, err := p.scan(true)
	if err != nil {
		p.t.Error(err)
	}
	want := append([]string{}, p.intact...)
	for _, r := range p.all {
		if r.file != p.damaged {
			want = append(want, r.data)
		}
	}
	if diff := cmp.Diff(want, records); diff != "" {
		p.t.Errorf("read that passes over the damage: -want +got:\n%s", diff)
	}
}

func (p *logPlay) scan(skipDamaged bool) (records []string, err error) {
	epochs, err := wal.Epochs(p.fs, path.Join(walDir, logName))
	if err != nil {
		return nil, err
	}
	for _, e := range epochs {
		_, err := wal.Scan(p.t.Context(), p.fs, e.Dir, wal.ScanOptions{SkipDamaged: skipDamaged}, func(_ uint64, _ base.Handle, rec []byte) error {
			records = append(records, shown(rec))
			return nil
		})
		if err != nil {
			return records, err
		}
	}
	return records, nil
}

// noticesLoss holds that a record which a read did not give, as after the loss
// of a whole file, is an error for those who have its handle.
func (p *logPlay) noticesLoss(records []string) {
	for _, r := range p.all {
		if slices.Contains(records, r.data) {
			continue
		}
		if b, err := p.store.Read(p.t.Context(), r.h); err == nil {
			p.t.Errorf("record %q is not in the log, but its handle reads %q", r.data, b)
		}
	}
}

// endIn finds the end of a file of Spark's.
var endIn = regexp.MustCompile(`^log-\d+-(\d+)$`)

// clean gives back the records of the files that end before the threshold: ours
// go by reference, and time is one reason to have no use for a record.
func (p *logPlay) clean(threshold int64) {
	var old []base.Handle
	p.all = slices.DeleteFunc(p.all, func(r written) bool {
		gone := atoi(endIn.FindStringSubmatch(r.file)[1]) < threshold
		if gone {
			old = append(old, r.h)
		}
		return gone
	})
	p.store.Release(old...)
	synctest.Wait() // deletion is in the background
}

// files lists what there is below the directory of the log.
func (p *logPlay) files() (names []string) {
	var walk func(dir string)
	walk = func(dir string) {
		infos, err := p.fs.List(dir)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, in := range infos {
			if in.Dir {
				walk(path.Join(dir, in.Name))
			} else {
				names = append(names, in.Name)
			}
		}
	}
	walk(path.Join(walDir, logName))
	return names
}

// create makes a file of a name that is none of Spark's, and one that is none
// of ours in the same way. A file that is Spark's is a record of ours.
func (p *logPlay) create(s walStep) {
	body, err := hex.DecodeString(s.Hex)
	if err != nil {
		p.t.Fatal(err)
	}
	if endIn.MatchString(s.File) {
		h, err := p.w.Append(p.t.Context(), body[4:]) // after the length
		if err != nil {
			p.t.Fatal(err)
		}
		p.all = append(p.all, written{data: string(body[4:]), file: s.File, h: h})
		return
	}
	name, ok := map[string]string{
		"other":         "other",
		"log-5":         "5.wal",
		"log-abc-9":     "abc.wal",
		"xlog-3-4":      "x0000000000000003.wal",
		"log-10-20.tmp": "0000000000000002.wal.tmp",
	}[s.File]
	if !ok {
		p.t.Fatalf("file %q is not known", s.File)
	}
	if err := fsys.WriteFile(p.fs, path.Join(walDir, logName, "e-000001", name), body); err != nil {
		p.t.Fatal(err)
	}
}

// names shows what our files are called.
func (p *logPlay) names(o outcome) {
	for range 2 {
		if _, err := p.w.Append(p.t.Context(), []byte("r")); err != nil {
			p.t.Fatal(err)
		}
		if err := p.w.Roll(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, name := range p.files() {
		o.add("names", "%s", name)
	}
}

// Damage happens to the same byte of the same record in both formats. Spark's
// has a length of 4 bytes, big endian, and the data; ours has a header of 20
// bytes that begins with the length, little endian.

const (
	sparkLength  = 4
	recordHeader = 20
)

func (p *logPlay) damage(s walStep) {
	records := keepOnly(p.all, func(r written) bool { return r.file == s.File })
	if len(records) == 0 {
		p.t.Fatalf("there is no file %q", s.File)
	}
	p.damaged = s.File
	_, before, _ := damageOf(p.c)
	for _, r := range records[:before] {
		p.intact = append(p.intact, r.data)
	}
	last := records[len(records)-1]
	size := last.offset + sparkLength + int64(len(last.data))
	// at returns where a byte of Spark's file is in ours, field says where in the
	// length.
	at := func(off int64, field func(int64) int64) int64 {
		i, _ := slices.BinarySearchFunc(records, off+1, func(r written, off int64) int { return int(r.offset - off) })
		r := records[i-1]
		if off -= r.offset; off < sparkLength {
			return r.h.Offset + field(off)
		}
		return r.h.Offset + recordHeader + off - sparkLength
	}
	same := func(i int64) int64 { return i }
	change(p.t, p.fs, p.path(s.File), func(b []byte) []byte {
		switch s.Op {
		case "cut":
			return b[:at(size-s.CutBytes, same)]
		case "truncate":
			if s.ToBytes == 0 {
				return nil
			}
			return b[:at(s.ToBytes, same)]
		case "append":
			more, err := hex.DecodeString(s.Hex)
			if err != nil {
				p.t.Fatal(err)
			}
			return append(b, more...)
		case "flip":
			b[at(s.Offset, func(i int64) int64 { return sparkLength - 1 - i })] ^= 0x80
			return b
		}
		p.t.Fatalf("step %q is not known", s.Op)
		return nil
	})
}

// path finds our file with the records of one of Spark's.
func (p *logPlay) path(file string) string {
	i := slices.IndexFunc(p.all, func(r written) bool { return r.file == file })
	epochs, err := wal.Epochs(p.fs, path.Join(walDir, logName))
	if err != nil || i < 0 {
		p.t.Fatalf("file %q: %v", file, err)
	}
	for _, e := range epochs {
		if h := p.all[i].h; e.Epoch == h.Epoch {
			return path.Join(e.Dir, fmt.Sprintf("%016d.wal", h.Segment))
		}
	}
	p.t.Fatalf("file %q: its epoch is gone", file)
	return ""
}

// shown writes a record as the cases do.
func shown(rec []byte) string {
	var b bytes.Buffer
	for _, c := range rec {
		if c >= ' ' && c <= '~' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "<%02x>", c)
		}
	}
	return b.String()
}

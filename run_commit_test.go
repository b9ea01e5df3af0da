package tidemill_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

// saver saves batches of four records, two of them in each of two partitions,
// and an empty batch.
func saver(mem *fsys.Mem, try func(task *tidemill.Task) error) tidetest.Job {
	return tidetest.Job{
		FS:     mem,
		Config: tidemill.Config{Executors: 2, MaxTaskFailures: 2},
		Build: func(ssc *tidemill.StreamingContext) error {
			in := tidetest.Script(ssc, "in", [][]int{{1, 2, 3, 4}, {}, {5, 6, 7, 8}, {9, 10, 11, 12}}, 2)
			lines := tidemill.MapPartitions(in, func(task *tidemill.Task, in iter.Seq[int], emit func(int) bool) error {
				for v := range in {
					emit(v)
				}
				if try != nil {
					return try(task)
				}
				return nil
			})
			tidemill.SaveAsTextFiles(lines, "save", "/out", nil)
			return nil
		},
	}
}

// checkSaved reads what is under /out. Every final directory must be whole.
func checkSaved(t *testing.T, mem *fsys.Mem, job *tidetest.Running) (final []string) {
	t.Helper()
	infos, err := mem.List("/out")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if strings.HasPrefix(i.Name, ".") {
			continue // staging
		}
		final = append(final, i.Name)
		dir := path.Join("/out", i.Name)
		text := readAll(t, mem, path.Join(dir, "_SUCCESS"))
		var m driver.Manifest
		if err := json.Unmarshal(text, &m); err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		first := int((m.TimeMS-int64(job.Time(1)))/1000)*4 + 1
		if first > 1 {
			first -= 4 // the second batch was empty
		}
		var want []string
		for v := range 4 {
			want = append(want, fmt.Sprint(first+v))
		}
		var got []string
		var records int64
		for _, p := range m.Parts {
			data := readAll(t, mem, path.Join(dir, p.Name))
			if int64(len(data)) != p.Bytes || fmt.Sprintf("%08x", crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))) != p.CRC32C {
				t.Errorf("%s: %+v does not fit %q", dir, p, data)
			}
			got = append(got, strings.Fields(string(data))...)
			records += p.Records
		}
		files, err := mem.List(dir)
		if err != nil || len(files) != len(m.Parts)+1 {
			t.Errorf("%s has %d files for %d parts: %v", dir, len(files), len(m.Parts), err)
		}
		if diff := cmp.Diff(want, got); diff != "" || m.Records != 4 || records != 4 || m.Output != "save" || m.Job != "test" || i.Name != fmt.Sprint("save-", m.TimeMS) {
			t.Errorf("%s: %+v: %s", dir, m, diff)
		}
	}
	return final
}

func readAll(t *testing.T, mem *fsys.Mem, name string) []byte {
	t.Helper()
	r, err := mem.Open(name)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return data
}

// TestTextCommitIsAllOrNothing fails the k-th operation on the output's files,
// once or from then on as a crash would, for every k. A second job on the same
// files then does what is missing and leaves alone what is there.
func TestTextCommitIsAllOrNothing(t *testing.T) {
	for _, crash := range []bool{false, true} {
		ended := false
		for k := 1; !ended; k++ {
			mem := fsys.NewMem()
			failed := ""
			var final []string
			tidetest.Run(t, func(t *testing.T) {
				var mu sync.Mutex
				n := 0
				mem.FailWith(func(op, name string) error {
					if !strings.HasPrefix(name, "/out") {
						return nil
					}
					mu.Lock()
					defer mu.Unlock()
					n++
					if n == k || crash && n > k {
						if failed == "" {
							failed = op + " " + name
						}
						return errDisk
					}
					return nil
				})
				job := tidetest.Start(t, saver(mem, nil))
				job.Advance(4)
				err := job.Err()
				mem.FailWith(nil)
				final = checkSaved(t, mem, job)
				if failed == "" {
					ended = true
					if err != nil || len(final) != 3 {
						t.Errorf("%v, %q", err, final)
					}
					return
				}
				if crash {
					if op, _, _ := strings.Cut(failed, " "); err == nil && !(op == "removeall" && len(final) == 3) {
						t.Errorf("k=%d: all operations fail from %q on, and the job does not mind", k, failed)
					}
				}
				if err != nil {
					holds(t, err, errDisk.Error(), `output "save"`)
				}
				if err == nil && len(final) != 3 {
					t.Errorf("k=%d (%s): no error, but only %q", k, failed, final)
				}
			})
			if ended {
				break
			}
			// The same batches again, on the same files: a bubble's time starts anew.
			touched := map[string]bool{}
			mem.FailWith(func(op, name string) error {
				for _, f := range final {
					if strings.HasPrefix(name, "/out/"+f) && op != "stat" && op != "list" {
						touched[op+" "+name] = true
					}
				}
				return nil
			})
			tidetest.Run(t, func(t *testing.T) {
				var mu sync.Mutex
				ran := map[string]bool{}
				job := tidetest.Start(t, saver(mem, func(task *tidemill.Task) error {
					mu.Lock()
					defer mu.Unlock()
					ran[fmt.Sprint("save-", ms(task.Batch()))] = true
					return nil
				}))
				job.Advance(4)
				job.Stop(true)
				mem.FailWith(nil)
				for _, f := range final {
					if ran[f] {
						t.Errorf("k=%d: tasks of %s ran again", k, f)
					}
				}
				if err := job.Err(); err != nil || len(touched) > 0 {
					t.Errorf("k=%d: the second job: %v; it touched %v", k, err, touched)
				}
				if got := checkSaved(t, mem, job); len(got) != 3 || strings.Contains(mem.String(), "/out/.") {
					t.Errorf("k=%d (%s): after the second job %q\n%s", k, failed, got, mem)
				}
			})
			if k > 300 {
				t.Fatal("no end of operations")
			}
		}
	}
}

// TestRetriedTaskLeavesOneCopy: attempts that failed, and one whose executor
// was lost, are not in the output.
func TestRetriedTaskLeavesOneCopy(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		mem := fsys.NewMem()
		var mu sync.Mutex
		tries := map[string]int{}
		job := tidetest.Start(t, saver(mem, func(task *tidemill.Task) error {
			mu.Lock()
			key := fmt.Sprint(task.Batch(), task.Partition())
			tries[key]++
			n := tries[key]
			mu.Unlock()
			if task.Partition() == 0 && n == 1 {
				return errors.New("once more")
			}
			sleep(100 * time.Millisecond)
			return nil
		}))
		sleep(1050 * time.Millisecond)
		job.Kill(0)
		job.Advance(4)
		job.Stop(true)
		if err := job.Err(); err != nil {
			t.Fatal(err)
		}
		if final := checkSaved(t, mem, job); len(final) != 3 || strings.Contains(mem.String(), "/out/.") {
			t.Errorf("%q\n%s", final, mem)
		}
		if n := slices.Max([]int{tries[fmt.Sprint(job.Time(1), 0)], tries[fmt.Sprint(job.Time(1), 1)]}); n < 2 {
			t.Errorf("%v", tries)
		}
	})
}

// TestStrangersDirectoryIsRefused: what has no manifest was not made by the job.
func TestStrangersDirectoryIsRefused(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		mem := fsys.NewMem()
		job := tidetest.Start(t, saver(mem, nil))
		dir := fmt.Sprintf("/out/save-%d", ms(job.Time(1)))
		if err := mem.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		job.Advance(1)
		wantErr(t, job, dir, "without _SUCCESS", "move it away")
	})
}

package rdd_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
)

const noon base.BatchTime = 1709209800000

func newScope(uid base.UID) *plan.Scope {
	return &plan.Scope{Set: base.DataSet{UID: uid, Time: noon}, Op: "operator " + string(uid)}
}

// local runs data sets in this goroutine and is their tasks' [rdd.Env]. It
// hands buckets over typed, or encodes each.
type local struct {
	rdd.Env // what these tests do not use

	ctx     context.Context
	encode  bool
	checked bool
	limit   int64

	typed  map[string]rdd.Bucket
	frames map[string][]byte
	kept   map[plan.CacheKey][]byte
	blocks map[string][]byte
	spills map[string][]byte
	runs   int // number of spilled frames so far
	tasks  int
	hashes []uint64
}

func newLocal(encode bool) *local {
	return &local{
		ctx: context.Background(), encode: encode, limit: math.MaxInt64,
		typed: map[string]rdd.Bucket{}, frames: map[string][]byte{}, kept: map[plan.CacheKey][]byte{},
		blocks: map[string][]byte{}, spills: map[string][]byte{},
	}
}

func bucketKey(s *plan.Shuffle, mapPart, part int) string {
	return fmt.Sprintf("%s/%d/%d", s.ID, mapPart, part)
}

func (l *local) Bucket(_ context.Context, s *plan.Shuffle, mapPart, part int) (rdd.Bucket, []byte, error) {
	key := bucketKey(s, mapPart, part)
	if b, ok := l.typed[key]; ok {
		return b, nil, nil
	}
	if f, ok := l.frames[key]; ok {
		return nil, f, nil
	}
	return nil, nil, &base.FetchError{Shuffle: s.ID, MapPart: mapPart, Reason: "no output"}
}

func (l *local) Kept(_ context.Context, key plan.CacheKey) ([]byte, bool) {
	f, ok := l.kept[key]
	return f, ok
}

func (l *local) Keep(key plan.CacheKey, frame []byte, _ base.StorageLevel) { l.kept[key] = frame }

func (l *local) Block(_ context.Context, batch base.BatchTime, b plan.Block) ([]byte, error) {
	f, ok := l.blocks[b.Key]
	if !ok {
		return nil, &base.LostBlocksError{Batch: batch, Blocks: []base.BlockID{b.ID}, Reason: "gone"}
	}
	return f, nil
}

func (l *local) CombineLimit() int64 { return l.limit }

func (l *local) Spill(_ context.Context, frame []byte) (string, error) {
	l.runs++
	key := strconv.Itoa(l.runs)
	l.spills[key] = frame
	return key, nil
}

func (l *local) Spilled(_ context.Context, key string) ([]byte, error) {
	f, ok := l.spills[key]
	if !ok {
		return nil, fmt.Errorf("no spilled frame %s", key)
	}
	return f, nil
}

func (l *local) Unspill(keys []string) {
	for _, k := range keys {
		delete(l.spills, k)
	}
}

func (l *local) task(part int) *rdd.Task {
	l.tasks++
	return rdd.NewTask(l.ctx, l, rdd.TaskSpec{
		Epoch: 3,
		Job:   "job", Run: "run", Operator: "out", Batch: noon, Partition: part, Executor: "e1", Checked: l.checked,
	})
}

// shuffle runs the stages before the last one.
func (l *local) shuffle(n *plan.Node) error {
	stages := plan.Stages(n, plan.All(n.Parts), func(n *plan.Node) bool {
		for p := range n.Parts {
			if l.kept[plan.CacheKey{Node: n.ID, Part: p}] == nil {
				return false
			}
		}
		return true
	})
	for _, st := range stages[:len(stages)-1] {
		for _, part := range st.Parts {
			if err := l.mapPart(st.Shuffle, part); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *local) mapPart(s *plan.Shuffle, part int) error {
	task := l.task(part)
	defer task.Close()
	buckets, err := rdd.MapPart(task, s, part)
	if err != nil {
		return err
	}
	if len(buckets) != s.Parts {
		return fmt.Errorf("%d buckets for %d partitions", len(buckets), s.Parts)
	}
	for i, b := range buckets {
		key := bucketKey(s, part, i)
		frame, err := b.Encode()
		if err != nil {
			return err
		}
		l.frames[key] = frame
		if !l.encode {
			l.typed[key] = b
		}
	}
	return nil
}

// unchanged reports typed buckets that are not what they were when they were
// handed over.
func (l *local) unchanged(t interface {
	Helper()
	Errorf(string, ...any)
},
) {
	t.Helper()
	for key, b := range l.typed {
		if now, err := b.Encode(); err != nil || !bytes.Equal(now, l.frames[key]) {
			t.Errorf("bucket %s was changed by those who read it (%v)", key, err)
		}
	}
	if len(l.spills) > 0 {
		t.Errorf("%d spilled frames are left behind", len(l.spills))
	}
}

// run computes all partitions of r.
func run[T any](l *local, r rdd.RDD[T]) ([][]T, error) {
	n := r.Node()
	if err := l.shuffle(n); err != nil {
		return nil, err
	}
	out := make([][]T, n.Parts)
	for part := range n.Parts {
		out[part] = []T{}
		task := l.task(part)
		_, err := rdd.OutputPart(task, n, part, func(task *rdd.Task, n *plan.Node, part int) ([]byte, error) {
			return nil, rdd.Records[T](task, n, part)(func(v T) bool {
				out[part] = append(out[part], v)
				return true
			})
		})
		l.hashes = append(l.hashes, task.ContentHash())
		task.Close()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func mustRun[T any](t testing.TB, l *local, r rdd.RDD[T]) [][]T {
	t.Helper()
	out, err := run(l, r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// both runs r with typed and with encoded buckets, which must agree
// (Invariant 13).
func both[T any](t *testing.T, r rdd.RDD[T]) [][]T {
	t.Helper()
	typed, encoded := newLocal(false), newLocal(true)
	encoded.checked = true
	out := mustRun(t, typed, r)
	typed.unchanged(t)
	same(t, "encoded against typed", mustRun(t, encoded, r), out)
	return out
}

func same[T any](t interface {
	Helper()
	Errorf(string, ...any)
}, what string, got, want [][]T,
) {
	t.Helper()
	if len(got) == 0 && len(want) == 0 {
		return
	}
	if g, w := fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

// source spreads records over partitions and counts how many are read.
func source[T any](scope *plan.Scope, parts ...[]T) rdd.RDD[T] {
	return rdd.FromSlices(scope, "test", parts)
}

func frame[T any](t testing.TB, records ...T) []byte {
	t.Helper()
	w := codec.NewFrameWriter(codec.For[T]())
	for _, v := range records {
		if err := w.Append(v); err != nil {
			t.Fatal(err)
		}
	}
	return w.Finish()
}

func decode[T any](t testing.TB, b []byte) []T {
	t.Helper()
	f, err := codec.OpenFrame(b)
	if err != nil {
		t.Fatal(err)
	}
	out := []T{}
	if _, err := codec.EachInFrame(codec.For[T](), f, func(v T) bool { out = append(out, v); return true }); err != nil {
		t.Fatal(err)
	}
	return out
}

func concat[T any](parts [][]T) []T { return append([]T{}, slices.Concat(parts...)...) }

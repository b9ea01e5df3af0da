package block_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/block"
	"github.com/tidemill/tidemill/internal/fsys"
	"pgregory.net/rapid"
)

// oracle says what a store that is used by one goroutine at a time must hold
// and where.
type oracle struct {
	limit, reserved int64
	blocks          map[string]*oracleBlock
	order           []string // of keys, as put
	full            bool     // the disk is
}

type oracleBlock struct {
	data   []byte
	level  base.StorageLevel
	onDisk bool
}

// memory returns the bytes in memory, and those of them that may move.
func (o *oracle) memory() (all, movable int64) {
	for _, b := range o.blocks {
		if !b.onDisk {
			all += int64(len(b.data))
			if b.level == base.MemoryAndDisk {
				movable += int64(len(b.data))
			}
		}
	}
	return all, movable
}

func (o *oracle) room() int64 { all, _ := o.memory(); return o.limit - o.reserved - all }

// makeRoom gives the error the store must give, or whether there is room.
func (o *oracle) makeRoom(n int64) (bool, error) {
	if _, movable := o.memory(); n > o.room()+movable {
		return false, nil
	}
	for _, k := range o.order {
		if n <= o.room() {
			break
		}
		b := o.blocks[k]
		if b.onDisk || b.level != base.MemoryAndDisk {
			continue
		}
		if o.full {
			return false, syscall.ENOSPC
		}
		b.onDisk = true
	}
	return true, nil
}

var errOther = errors.New("other bytes")

// tryPut gives the error that TryPut must give.
func (o *oracle) tryPut(key string, data []byte, level base.StorageLevel) error {
	n := int64(len(data))
	if level == base.MemoryOnly && n > o.limit {
		return block.ErrNoMemory
	}
	if b := o.blocks[key]; b != nil {
		if !bytes.Equal(b.data, data) {
			return errOther
		}
		return nil
	}
	room := false
	if level != base.DiskOnly {
		var err error
		if room, err = o.makeRoom(n); err != nil {
			return err
		}
	}
	switch {
	case room:
	case level == base.MemoryOnly:
		return block.ErrNoMemory
	case o.full:
		return syscall.ENOSPC
	}
	o.blocks[key] = &oracleBlock{data, level, !room}
	o.order = append(o.order, key)
	return nil
}

func (o *oracle) drop(match func(string) bool) (n int) {
	o.order = slices.DeleteFunc(o.order, func(k string) bool {
		if match(k) {
			delete(o.blocks, k)
			n++
			return true
		}
		return false
	})
	return n
}

// TestStoreAgreesWithOracle runs random calls, disk-full periods included,
// against the oracle.
func TestStoreAgreesWithOracle(t *testing.T) {
	keys := []string{"a", "a/1", "a/1@1", "a/10", "a/2", "b#x:1", "b#x:2", "b", "é/1", "\xff"}
	prefixes := append([]string{"", "a/", "b#", "\xff", "zzz"}, keys...)
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 60).Draw(t, "limit")
		disk := fsys.NewMem()
		s, err := block.Open(block.Config{FS: disk, Dir: dir, MemoryLimit: limit})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		o := &oracle{limit: limit, blocks: map[string]*oracleBlock{}}
		key := rapid.SampledFrom(keys)
		disk.FailWith(func(op, name string) error {
			if o.full && (op == "write" || op == "create" || op == "mkdirall") {
				return syscall.ENOSPC
			}
			return nil
		})

		store := func(t *rapid.T, wait bool) {
			k := key.Draw(t, "key")
			level := rapid.SampledFrom([]base.StorageLevel{base.MemoryOnly, base.MemoryAndDisk, base.DiskOnly}).Draw(t, "level")
			data := bytes.Repeat([]byte{rapid.ByteRange('x', 'y').Draw(t, "fill")}, rapid.IntRange(0, 40).Draw(t, "size"))
			if wait && level == base.MemoryOnly && int64(len(data)) <= limit && o.blocks[k] == nil {
				if _, movable := o.memory(); int64(len(data)) > o.room()+movable {
					t.Skip("would wait for ever")
				}
			}
			want := o.tryPut(k, data, level)
			put := s.TryPut
			if wait {
				put = s.Put
			}
			err := put(t.Context(), k, data, level)
			switch {
			case want == nil && err == nil:
			case want == errOther && err != nil && strings.Contains(err.Error(), errOther.Error()):
			case want != nil && errors.Is(err, want) && strings.Contains(err.Error(), "put "):
			default:
				t.Fatalf("put of %q: %v, want %v", k, err, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"Put":    func(t *rapid.T) { store(t, true) },
			"TryPut": func(t *rapid.T) { store(t, false) },
			"Drop": func(t *rapid.T) {
				k := key.Draw(t, "key")
				s.Drop(k)
				o.drop(func(other string) bool { return other == k })
			},
			"DropPrefix": func(t *rapid.T) {
				p := rapid.SampledFrom(prefixes).Draw(t, "prefix")
				want := o.drop(func(k string) bool { return strings.HasPrefix(k, p) })
				if n := s.DropPrefix(p); n != want {
					t.Fatalf("DropPrefix(%q) dropped %d, want %d", p, n, want)
				}
			},
			"Reserve": func(t *rapid.T) {
				n := rapid.Int64Range(0, limit+1).Draw(t, "n")
				want, err := o.makeRoom(n)
				want = want && err == nil
				if got := s.Reserve(n); got != want {
					t.Fatalf("Reserve(%d) is %t, want %t", n, got, want)
				}
				if want {
					o.reserved += n
				}
			},
			"Release": func(t *rapid.T) {
				n := rapid.Int64Range(0, o.reserved).Draw(t, "n")
				s.Release(n)
				o.reserved -= n
			},
			"DiskFull": func(t *rapid.T) { o.full = !o.full },
			"": func(t *rapid.T) {
				for _, k := range keys {
					got, err := s.Get(k)
					b := o.blocks[k]
					switch {
					case s.Has(k) != (b != nil):
						t.Fatalf("Has(%q) is %t", k, s.Has(k))
					case b == nil && !errors.Is(err, block.ErrNotFound):
						t.Fatalf("Get(%q): %v, want ErrNotFound", k, err)
					case b != nil && (err != nil || !bytes.Equal(got, b.data)):
						t.Fatalf("Get(%q): %q, %v, want %q", k, got, err, b.data)
					}
				}
				var onDisk, diskBytes int64
				for _, b := range o.blocks {
					if b.onDisk {
						onDisk++
						diskBytes += int64(len(b.data))
					}
				}
				st := s.Stats()
				memory, _ := o.memory()
				if st.Blocks != len(o.blocks) || st.MemoryBytes != memory || st.DiskBytes != diskBytes || st.Reserved != o.reserved || st.Waiting != 0 {
					t.Fatalf("Stats %+v, want %d blocks, %d in memory, %d on disk, %d reserved", st, len(o.blocks), memory, diskBytes, o.reserved)
				}
				if st.MemoryBytes+st.Reserved > limit {
					t.Fatalf("Stats %+v: over the limit", st)
				}
				if infos, err := disk.List(dir); err == nil && int64(len(infos)) != onDisk {
					t.Fatalf("%d files, want %d", len(infos), onDisk)
				}
			},
		})
	})
}

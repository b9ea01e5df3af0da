package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
)

// messages are all that driver and executors send each other.
var messages = []any{
	rpc.Plan{},
	rpc.StageTasks{},
	rpc.CancelTask{},
	rpc.Release{},
	rpc.EndBatch{},
	rpc.BlocksLost{},
	rpc.StartReceiver{},
	rpc.StopReceiver{},
	rpc.RateLimit{},
	rpc.TaskDone{},
	rpc.AddBlock{},
	rpc.ReceiverEvent{},
}

// fill puts a value that is not zero into everything that v holds. A kind it
// does not know has no business in a message.
func fill(v reflect.Value, n *int) error {
	*n++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.1)
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d \xff", *n))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			if err := fill(v.Index(i), n); err != nil {
				return err
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			if err := errors.Join(fill(key, n), fill(value, n)); err != nil {
				return err
			}
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				return fmt.Errorf("%s.%s is not exported and would be lost", v.Type(), v.Type().Field(i).Name)
			}
			if err := fill(v.Field(i), n); err != nil {
				return fmt.Errorf("%s: %w", v.Type().Field(i).Name, err)
			}
		}
	default:
		return fmt.Errorf("a %s in a message", v.Type())
	}
	return nil
}

// TestCopyKeepsEveryField: what is added to a message without being encoded
// shows here.
func TestCopyKeepsEveryField(t *testing.T) {
	for _, m := range messages {
		in := reflect.New(reflect.TypeOf(m)).Elem()
		n := 0
		if err := fill(in, &n); err != nil {
			t.Errorf("%T: %v", m, err)
			continue
		}
		out, err := rpc.Copy(in.Interface())
		if err != nil {
			t.Errorf("%T: %v", m, err)
			continue
		}
		if d := cmp.Diff(in.Interface(), out); d != "" {
			t.Errorf("%T: -sent +received:\n%s", m, d)
		}
		zero, err := rpc.Copy(m)
		if err != nil {
			t.Errorf("zero %T: %v", m, err)
		}
		if d := cmp.Diff(m, zero); d != "" {
			t.Errorf("zero %T: -sent +received:\n%s", m, d)
		}
	}
}

// TestAllMessagesAreCopied compares the list with the source.
func TestAllMessagesAreCopied(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "messages.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range messages {
		listed = append(listed, reflect.TypeOf(m).Name())
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl: // the messages to executors
			if d.Name.Name == "toExecutor" {
				if name := d.Recv.List[0].Type.(*ast.Ident).Name; !slices.Contains(listed, name) {
					t.Errorf("message %s is not in the list", name)
				}
			}
		case *ast.GenDecl: // those to the driver are parameters of its methods
			for _, spec := range d.Specs {
				ts, ok := spec.(*ast.TypeSpec)
				if !ok || ts.Name.Name != "Driver" {
					continue
				}
				ast.Inspect(ts.Type, func(n ast.Node) bool {
					if f, ok := n.(*ast.Field); ok {
						if id, ok := f.Type.(*ast.Ident); ok && id.IsExported() && !slices.Contains(listed, id.Name) {
							t.Errorf("message %s is not in the list", id.Name)
						}
					}
					return true
				})
			}
		}
	}
}

func TestCopySharesNoMemory(t *testing.T) {
	in := rpc.TaskDone{Result: []byte("abc"), Counters: map[string]int64{"a": 1}, Failure: &rpc.Failure{Task: &base.TaskError{Message: "m"}}}
	out, err := rpc.Copy(in)
	if err != nil {
		t.Fatal(err)
	}
	out.Result[0], out.Counters["a"], out.Failure.Task.Message = 'x', 2, "n"
	if string(in.Result) != "abc" || in.Counters["a"] != 1 || in.Failure.Task.Message != "m" {
		t.Errorf("a change of the copy shows in the original: %+v", in)
	}
}

func TestCopyKeepsTheTypeBehindAnInterface(t *testing.T) {
	var in rpc.ToExecutor = rpc.CancelTask{Job: 1, Task: rpc.TaskRef{Part: 2, Attempt: 3}}
	out, err := rpc.Copy(in)
	if err != nil || out != in {
		t.Errorf("copy %#v (%v), want %#v", out, err, in)
	}
}

func TestCopyRefusesCode(t *testing.T) {
	if _, err := rpc.Copy(struct{ F func() }{func() {}}); err == nil {
		t.Error("a function was sent")
	}
}

// recorder keeps what a driver is told.
type recorder struct {
	done   []rpc.TaskDone
	events []rpc.ReceiverEvent
	blocks []rpc.AddBlock
}

func (r *recorder) TaskDone(m rpc.TaskDone) { r.done = append(r.done, m) }

func (r *recorder) ReceiverEvent(m rpc.ReceiverEvent)                { r.events = append(r.events, m) }
func (r *recorder) Mismatch(base.ExecutorID, base.BatchTime, string) {}
func (r *recorder) AddBlock(_ context.Context, m rpc.AddBlock) (err error) {
	r.blocks = append(r.blocks, m)
	return errors.New("refused")
}

func TestCheckedDriverPassesCopies(t *testing.T) {
	r := &recorder{}
	d := rpc.CheckedDriver(r)
	done := rpc.TaskDone{Executor: "e", Result: []byte("abc")}
	d.TaskDone(done)
	done.Result[0] = 'x'
	if len(r.done) != 1 || string(r.done[0].Result) != "abc" {
		t.Errorf("received %+v, want a copy", r.done)
	}
	event := rpc.ReceiverEvent{Stream: "lines", Epoch: 1, Message: "m", Ended: true}
	d.ReceiverEvent(event)
	if len(r.events) != 1 || r.events[0] != event {
		t.Errorf("received %+v, want %+v", r.events, event)
	}
	block := rpc.AddBlock{Block: plan.Block{Key: "k", Records: 2}}
	if err := d.AddBlock(context.Background(), block); err == nil || len(r.blocks) != 1 || !cmp.Equal(r.blocks[0], block) {
		t.Errorf("received %+v (%v), want %+v and the driver's error", r.blocks, err, block)
	}
}

type peer struct{ rpc.Peer }

func TestHub(t *testing.T) {
	h := rpc.NewHub()
	one := &peer{}
	h.Join("e1", one)
	if p, err := h.Peer("e1"); err != nil || p != rpc.Peer(one) {
		t.Errorf("peer %v, %v", p, err)
	}
	h.Leave("e1")
	h.Leave("e1")
	if _, err := h.Peer("e1"); err == nil {
		t.Error("an executor that left is found")
	}
}

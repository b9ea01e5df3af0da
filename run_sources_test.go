package tidemill_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

// A directory is followed over the loss of the executor that followed it: no
// line twice, none left out.
func TestTailDirGoesOnWhereALostExecutorWas(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		disk := fsys.NewMem()
		if err := disk.Mkdir("/logs"); err != nil {
			t.Fatal(err)
		}
		file, err := disk.Create("/logs/app.log")
		if err != nil {
			t.Fatal(err)
		}
		write := func(text string) {
			t.Helper()
			if _, err := io.WriteString(file, text); err != nil {
				t.Fatal(err)
			}
		}
		out := tidetest.NewCapture[string]()
		job := tidetest.Start(t, tidetest.Job{
			FS:     disk,
			Config: tidemill.Config{Executors: 2},
			Build: func(ssc *tidemill.StreamingContext) error {
				out.Of(tidemill.TailDir(ssc, "logs", "/logs"), "out")
				return nil
			},
		})
		write("one\ntwo\nthr")
		job.Advance(2)
		write("ee\nfour\n")
		job.Advance(2)
		job.Kill(0)
		write("five\n")
		job.Advance(4)
		write("six\n")
		job.Advance(2)
		job.Stop(true)
		if got, want := slices.Concat(out.Records()...), []string{"one", "two", "three", "four", "five", "six"}; !slices.Equal(got, want) {
			t.Errorf("lines %q", got)
		}
	})
}

func TestTailDirNeedsADirectory(t *testing.T) {
	_, err := tidetest.New(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
		tidemill.Print(tidemill.TailDir(ssc, "logs", ""), "out", 1)
		return nil
	}})
	if err == nil || !strings.Contains(err.Error(), `tailDir "logs": the directory is empty: give a path`) {
		t.Errorf("New returned %v", err)
	}
}

// started hears where receivers listen.
type started chan string

func (s started) OnReceiverStarted(r tidemill.ReceiverInfo) { s <- r.Message }

// Sockets are outside of fake time: this test takes some real time.
func TestRecordsComeInOverSockets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return // closed above
		}
		b := binary.BigEndian.AppendUint32(nil, 3)
		_, _ = c.Write(append(b, "\xff\x00a"...)) // the test sees it if it is missing
		c.Close()
	}()
	lines, frames, begun := tidetest.NewCapture[string](), make(chan string, 100), make(started, 100)
	ssc, err := tidetest.New(t, tidetest.Job{
		Config:    tidemill.Config{BatchInterval: 20 * time.Millisecond, BlockInterval: 5 * time.Millisecond},
		Listeners: []any{begun},
		Build: func(ssc *tidemill.StreamingContext) error {
			lines.Of(tidemill.HTTPIngest(ssc, "http", "127.0.0.1:0"), "lines-out")
			in := tidemill.SocketFrames(ssc, "frames", l.Addr().String())
			tidemill.ForeachBatch(in, "frames-out", func(ctx context.Context, b *tidemill.Batch[[]byte]) error {
				got, err := b.Collect(ctx)
				for _, f := range got {
					frames <- string(f)
				}
				return err
			})
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := ssc.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	url := ""
	for limit := time.After(10 * time.Second); url == ""; {
		select {
		case m := <-begun:
			_, url, _ = strings.Cut(m, "listening on ")
		case <-limit:
			t.Fatal("the receiver does not listen")
		}
	}
	resp, err := http.Post(url, "text/plain", strings.NewReader("a\nb\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(body) != "{\"records\":2}\n" || err != nil {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
	http.DefaultClient.CloseIdleConnections()
	select {
	case got := <-frames:
		if got != "\xff\x00a" {
			t.Errorf("frame %q", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("no frame")
	}
	if _, err := ssc.Stop(t.Context(), true); err != nil {
		t.Error(err)
	}
	if got := slices.Concat(lines.Records()...); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("lines %q", got)
	}
	if n := len(frames); n > 0 {
		t.Errorf("%d more frames", n)
	}
}

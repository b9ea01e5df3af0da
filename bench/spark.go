package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
)

// sparkState runs the state workloads on both sides: the same keys, the same
// touches, CPU seconds per batch and bytes of heap per key.
func sparkState() (over bool, err error) {
	const keys, batches = 1_000_000, 40
	runtime.GOMAXPROCS(runtime.NumCPU()) // as Spark's local[2]
	for _, w := range []struct {
		name, op string
		args     []string
		limit    float64
		job      func() (stateRun, error)
	}{
		{"mapWithState", "map", nil, 8, func() (stateRun, error) { return runState(newTouches(keys, keys/100, batches), mapJob) }},
		{"updateStateByKey", "update", []string{"--storage", "memory"}, 20, func() (stateRun, error) {
			return runState(newTouches(keys, keys/100, batches), updateJob)
		}},
	} {
		ours, err := w.job()
		if err != nil {
			return over, err
		}
		args := append([]string{"--heap", "6g", "state", "--op", w.op, "--keys", strconv.Itoa(keys), "--batches", "65", "--warm-batches", "40"}, w.args...)
		fmt.Printf("%s: 1 M keys, 10 000 touches a batch; running Spark, which takes about two minutes\n", w.name)
		cmd := exec.Command("bench/spark/sparkbench", args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return over, fmt.Errorf("spark: %w (it needs Java 17 and Maven)", err)
		}
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		var spark struct {
			CPU  float64 `json:"cpu_s_per_batch"`
			Heap float64 `json:"heap_bytes_per_key"`
		}
		if err := json.Unmarshal(lines[len(lines)-1], &spark); err != nil {
			return over, fmt.Errorf("spark: %w in %s", err, lines[len(lines)-1])
		}
		times := spark.CPU / ours.mean.Seconds()
		verdict := "ok"
		if times < w.limit {
			verdict, over = "BELOW THE LIMIT", true
		}
		fmt.Printf("  CPU s/batch: Spark %.3f, ours %.4f: %.0f times cheaper (limit %.0f: %s)\n  bytes/key:   Spark %.0f, ours %.0f\n",
			spark.CPU, ours.mean.Seconds(), times, w.limit, verdict, spark.Heap, ours.heapKey)
	}
	return over, nil
}

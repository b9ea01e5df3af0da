package tidemill

import (
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/driver"
)

var update = flag.Bool("update", false, "write the generated pages of docs again")

// samples holds, for every setting, texts that set it to something else than
// its default, and texts that are refused, with words of the refusal.
var samples = []struct {
	name string
	good []string // the first is what String prints for all of them
	bad  map[string]string
}{
	{"batch-interval", []string{"1m30s", "90s", "90000ms"}, map[string]string{"0s": "positive", "-1s": "positive", "1500us": "whole number of milliseconds", "5": "500ms", "": "500ms"}},
	{"executors", []string{"3"}, map[string]string{"0": "at least 1", "-1": "at least 1", "two": "whole number", "1.5": "whole number", "99999999999999999999": "whole number"}},
	{"task-slots", []string{"7"}, map[string]string{"0": "at least 1"}},
	{"parallelism", []string{"16"}, map[string]string{"0": "at least 1"}},
	{"max-pending-batches", []string{"5"}, map[string]string{"0": "at least 1"}},
	{"max-batch-records", []string{"1000000"}, map[string]string{"-1": "at least 0", "1e6": "whole number"}},
	{"max-batch-bytes", []string{"1048576", "1MiB", "1024KiB", "1048576B"}, map[string]string{"-1": "at least 0", "1MB": "64MiB", "1.5GiB": "64MiB", "MiB": "64MiB", "9999999999GiB": "64MiB"}},
	{"max-task-failures", []string{"1"}, map[string]string{"0": "at least 1"}},
	{"on-batch-failure", []string{"continue"}, map[string]string{"fail": "one of stop, continue", "": "one of stop, continue"}},
	{"on-lost-blocks", []string{"skip"}, map[string]string{"stop": "one of fail, skip"}},
	{"catch-up", []string{"all"}, map[string]string{"ALL": "one of merged, all"}},
	{"stop-timeout", []string{"5m0s", "5m"}, map[string]string{"-1s": "positive", "soon": "500ms"}},
	{"memory-limit", []string{"2147483648", "2GiB"}, map[string]string{"-1GiB": "at least 0", "lots": "64MiB"}},
	{"checked", []string{"true", "1", "t"}, map[string]string{"yes": "neither true nor false"}},
	{"durability", []string{"sync"}, map[string]string{"disk": "one of flush, sync, memory"}},
	{"receiver-wal", []string{"off"}, map[string]string{"false": "one of on, off"}},
	{"segment-bytes", []string{"1048576", "1MiB"}, map[string]string{"-1": "at least 0"}},
	{"segment-age", []string{"5m0s", "300s"}, map[string]string{"-1s": "positive"}},
	{"snapshot-bytes", []string{"4194304", "4MiB"}, map[string]string{"-1": "at least 0"}},
	{"snapshots-kept", []string{"5"}, map[string]string{"0": "at least 1"}},
	{"block-interval", []string{"50ms"}, map[string]string{"-1ms": "positive"}},
	{"max-block-bytes", []string{"65536", "64KiB"}, map[string]string{"-1": "at least 0"}},
	{"receiver-rate", []string{"2.5", "25e-1"}, map[string]string{"-1": "at least 0", "NaN": "no number", "fast": "no number", "Inf": "finite"}},
	{"receiver-byte-rate", []string{"1e+06", "1000000", "1e6"}, map[string]string{"-0.5": "at least 0"}},
	{"rate-control", []string{"true", "1"}, map[string]string{"on": "neither true nor false"}},
	{"rate-initial", []string{"2500", "2.5e3"}, map[string]string{"-1": "at least 0", "NaN": "no number", "Inf": "finite"}},
	{"rate-proportional", []string{"0", "0.0"}, map[string]string{"-1": "at least 0", "NaN": "no number", "Inf": "finite"}},
	{"rate-integral", []string{"0", "0.0"}, map[string]string{"-0.2": "at least 0", "NaN": "no number"}},
	{"rate-derived", []string{"0.1", "1e-1"}, map[string]string{"-1": "at least 0", "NaN": "no number"}},
	{"rate-min", []string{"0.5", ".5"}, map[string]string{"0": "more than 0", "-10": "at least 0", "NaN": "no number", "Inf": "finite"}},
	{"file-remember", []string{"1h0m0s", "60m"}, map[string]string{"-1h": "positive"}},
	{"hdfs-replication", []string{"2", "02"}, map[string]string{"-1": "at least 0", "x": "no whole number"}},
	{"hdfs-min-replicas", []string{"1", "01"}, map[string]string{"-1": "at least 0"}},
	{"hdfs-commit", []string{"close", "close"}, map[string]string{"never": "one of acks, close"}},
	{"hdfs-timeout", []string{"5s", "5000ms"}, map[string]string{"-1s": "positive"}},
	{"hdfs-patience", []string{"1m0s", "60s"}, map[string]string{"-1s": "positive"}},
}

func TestEverySettingHasSamples(t *testing.T) {
	var names []string
	for _, s := range samples {
		names = append(names, s.name)
	}
	if diff := cmp.Diff(settingNames(), names); diff != "" {
		t.Errorf("-settings +samples\n%s", diff)
	}
}

func TestSetIsSeenInStringAndNowhereElse(t *testing.T) {
	for _, s := range samples {
		for _, text := range s.good {
			var c Config
			if err := c.Set(s.name, text); err != nil {
				t.Error(err)
				continue
			}
			if err := c.Validate(); err != nil {
				t.Errorf("%s=%s: %v", s.name, text, err)
			}
			if got := shown(c)[s.name]; got != s.good[0] {
				t.Errorf("%s=%s: String shows %q, want %q", s.name, text, got, s.good[0])
			}
			if fields := changed(c); len(fields) != 1 {
				t.Errorf("%s=%s changed %v, want one field", s.name, text, fields)
			}
		}
	}
}

// What String prints can be given to Set, and then means the same.
func TestStringCanBeSetAgain(t *testing.T) {
	var all Config
	for _, s := range samples {
		if err := all.Set(s.name, s.good[0]); err != nil {
			t.Fatal(err)
		}
	}
	if n := reflect.TypeFor[Config]().NumField(); len(changed(all)) != n {
		t.Errorf("all settings change %v, but Config has %d fields", changed(all), n)
	}
	for what, c := range map[string]Config{"defaults": {}, "all": all} {
		var again Config
		for name, value := range shown(c) {
			if err := again.Set(name, value); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if again.String() != c.String() {
			t.Errorf("%s: %s\nbecame %s", what, c, again)
		}
		if what == "all" && again != c {
			t.Errorf("%+v became %+v", c, again)
		}
	}
}

func TestSetErrorNamesSettingValueAndRule(t *testing.T) {
	for _, s := range samples {
		for value, rule := range s.bad {
			var c Config
			err := c.Set(s.name, value)
			if err == nil {
				t.Errorf("%s=%s was taken", s.name, value)
				continue
			}
			for _, want := range []string{s.name, value, rule} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %q", err, want)
				}
			}
			if c != (Config{}) {
				t.Errorf("%s=%s: refused, but changed %v", s.name, value, changed(c))
			}
		}
	}
	err := new(Config).Set("batch-intervall", "1s")
	if err == nil || !strings.Contains(err.Error(), `"batch-intervall"`) || !strings.Contains(err.Error(), "batch-interval, executors, ") {
		t.Errorf("unknown setting: %v", err)
	}
}

func TestValidateNamesFieldValueAndRule(t *testing.T) {
	for _, test := range []struct {
		c    Config
		want string
	}{
		{Config{BatchInterval: -time.Second}, "setting batch-interval is -1s: must be positive"},
		{Config{BatchInterval: time.Second + 1}, "setting batch-interval is 1.000000001s: must be a whole number of milliseconds"},
		{Config{Executors: -1}, "setting executors is -1: must be at least 1"},
		{Config{MaxBatchRecords: -5}, "setting max-batch-records is -5: must be at least 0"},
		{Config{MemoryLimit: -1}, "setting memory-limit is -1: must be at least 0"},
		{Config{ReceiverRate: -1}, "setting receiver-rate is -1: must be at least 0"},
		{Config{ReceiverRate: math.NaN()}, "setting receiver-rate is NaN: must be at least 0"},
		{Config{RateInitial: math.Inf(1)}, "setting rate-initial is +Inf: must be finite"},
		{Config{RateProportional: Some(-1.0)}, "setting rate-proportional is -1: must be at least 0"},
		{Config{RateIntegral: Some(math.NaN())}, "setting rate-integral is NaN: must be at least 0"},
		{Config{RateMin: -10}, "setting rate-min is -10: must be at least 0"},
		{Config{CatchUp: "none"}, "setting catch-up is none: must be one of merged, all"},
	} {
		if err := test.c.Validate(); err == nil || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}

// B40 (e): a maximum of 0 is documented as no limit, others that are no rate
// are refused before anything starts.
func TestB40eMaximumRate(t *testing.T) {
	for _, s := range settings() {
		if s.name == "receiver-rate" && s.def != "0 (no limit)" {
			t.Errorf("documented: %s", s.def)
		}
	}
	for _, on := range []bool{false, true} {
		for _, rate := range []float64{0, 0.5, -1, math.NaN(), math.Inf(1)} {
			err := Config{RateControl: on, ReceiverRate: rate}.Validate()
			if allowed := rate == 0 || rate == 0.5; allowed != (err == nil) {
				t.Errorf("rate control %v, maximum %v: %v", on, rate, err)
			}
		}
	}
}

func TestRateSettingsReachTheDriver(t *testing.T) {
	for _, test := range []struct {
		set  string
		want driver.RateConfig
	}{
		{"", driver.RateConfig{Proportional: 1, Integral: 0.2, Min: 100}},
		{"rate-control=true", driver.RateConfig{On: true, Proportional: 1, Integral: 0.2, Min: 100}},
		{"rate-initial=7", driver.RateConfig{Initial: 7, Proportional: 1, Integral: 0.2, Min: 100}},
		{"receiver-rate=8", driver.RateConfig{Max: 8, Proportional: 1, Integral: 0.2, Min: 100}},
		{"rate-proportional=0", driver.RateConfig{Integral: 0.2, Min: 100}},
		{"rate-integral=0", driver.RateConfig{Proportional: 1, Min: 100}},
		{"rate-derived=3", driver.RateConfig{Proportional: 1, Integral: 0.2, Derivative: 3, Min: 100}},
		{"rate-min=4", driver.RateConfig{Proportional: 1, Integral: 0.2, Min: 4}},
	} {
		var c Config
		if name, value, ok := strings.Cut(test.set, "="); ok {
			if err := c.Set(name, value); err != nil {
				t.Error(err)
			}
		}
		if got := c.withDefaults().rates(); got != test.want {
			t.Errorf("%q: %+v, want %+v", test.set, got, test.want)
		}
	}
}

// shown parses what String prints.
func shown(c Config) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(c.String()) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		values[name] = value
	}
	return values
}

// changed lists the fields that are not zero.
func changed(c Config) []string {
	var names []string
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return names
}

// TestDocs compares docs/configuration.md with the table of settings, or
// writes it with -update, as make docs does.
func TestDocs(t *testing.T) {
	const name = "docs/configuration.md"
	want := configurationPage(t)
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is old, make docs writes it again (-want +got):\n%s", name, diff)
	}
}

// A default that is a plain value must be the one in effect.
func TestDocumentedDefaultsAreInEffect(t *testing.T) {
	// Sizes, and settings that packages below give a default of their own.
	plain := regexp.MustCompile(`^[a-z]+$|^\d+$|^[0-9hms]+$`)
	inEffect := shown(Config{})
	checked := 0
	for _, s := range settings() {
		if !plain.MatchString(s.def) {
			continue
		}
		checked++
		if inEffect[s.name] != s.def {
			t.Errorf("%s: documented %s, in effect %s", s.name, s.def, inEffect[s.name])
		}
	}
	if checked < 8 {
		t.Errorf("checked only %d", checked)
	}
}

func configurationPage(t *testing.T) string {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Written by "make docs" from the table in config.go. -->

Settings say how a job runs. They come from three places; a later one wins:

1. the defaults below;
2. the program: ` + "`App.Configure`" + ` changes fields of ` + "`tidemill.Config`" + `, where a zero field stands for its default;
3. the command line: ` + "`-set name=value`" + `, as often as needed.

` + "`-graph`" + ` prints every setting with the value in effect. A wrong name or value ends the program with exit code 2
before anything has started.

Durations are written as in ` + "`500ms`, `2s`, `1m30s`" + `, in whole milliseconds. Sizes are bytes, or have a unit: ` + "`64KiB`, `16MiB`, `1GiB`" + `.

| Setting | Field | Default | Meaning |
|---|---|---|---|
`)
	for i, s := range settings() {
		var c Config
		if err := c.Set(s.name, samples[i].good[0]); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", s.name, strings.Join(changed(c), ", "), s.def, strings.ReplaceAll(s.doc, "|", `\|`))
	}
	return b.String()
}

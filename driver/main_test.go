package driver_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the golden output of testdata/*.txt")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

package main

import (
	"math"
	"math/rand/v2"
	"sort"

	"github.com/tidemill/tidemill/internal/codec"
)

// needle is what the filter looks for; one line in a hundred has it.
const needle = "zqneedle"

// corpus makes text lines of a fixed length from a Zipf vocabulary.
type corpus struct {
	rng   *rand.Rand
	words []string
	cum   []float64
}

func newCorpus(vocabulary int) *corpus {
	c := &corpus{rng: rand.New(rand.NewPCG(1, 2))}
	const letters = "etaoinshrdlucmfwypvbgk"
	sum := 0.0
	for i := range vocabulary {
		w := make([]byte, 3+c.rng.IntN(8))
		for j := range w {
			w[j] = letters[c.rng.IntN(len(letters))]
		}
		c.words = append(c.words, string(w))
		sum += 1 / math.Pow(float64(i+1), 1.1)
		c.cum = append(c.cum, sum)
	}
	return c
}

func (c *corpus) word() string {
	x := c.rng.Float64() * c.cum[len(c.cum)-1]
	return c.words[sort.SearchFloat64s(c.cum, x)]
}

// line returns a line of exactly n bytes.
func (c *corpus) line(n int) string {
	b := make([]byte, 0, n+16)
	if c.rng.IntN(100) == 0 {
		b = append(b, needle...)
	}
	for len(b) < n {
		if len(b) > 0 {
			b = append(b, ' ')
		}
		b = append(b, c.word()...)
	}
	return string(b[:n])
}

// blocks packs lines into encoded blocks, as a receiver would.
func (c *corpus) blocks(blocks, linesPer, lineLen int) [][]byte {
	var out [][]byte
	for range blocks {
		w := codec.NewFrameWriter(codec.For[string]())
		for range linesPer {
			if err := w.Append(c.line(lineLen)); err != nil {
				panic(err) // strings always encode
			}
		}
		out = append(out, w.Finish())
	}
	return out
}

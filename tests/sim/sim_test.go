package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "first seed, or the only one with -seeds 1; 0: 1")
	seedsFlag = flag.Int("seeds", 0, "number of seeds; 0: a few")
	raftFlag  = flag.Bool("raft-only", false, "let raft take every turn of every group, without the steady state")
	storyFlag = flag.Bool("story", false, "print everything that happens")
)

// run runs one seed. Raft draws its election timeouts from crypto/rand, so run
// makes crypto/rand depend on the seed, too.
func run(t *testing.T, seed uint64, plain bool, store string, more ...func(*World)) (w *World, err error) {
	cryptotest.SetGlobalRandom(t, seed)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("seed %d step %d: panic: %v\n%s", seed, w.step, p, debug.Stack())
		}
	}()
	w = New(seed, plain)
	w.UseStore(store)
	if *raftFlag {
		w.UseRaftOnly()
	}
	for _, also := range more {
		also(w)
	}
	if *storyFlag {
		w.Story = os.Stdout
	}
	defer w.Close()
	return w, w.Run()
}

// savedSeed is a seed that failed once, with the kind of world in which it
// failed.
type savedSeed struct {
	seed     uint64
	plain    bool // the world was without the settings that were added later
	raftOnly bool
}

// seeds returns the seeds to run, and the saved seeds.
func seeds(t *testing.T) (out []uint64, saved []savedSeed) {
	first, n := *seedFlag, *seedsFlag
	if first == 0 {
		first = 1
	}
	if n == 0 {
		n = 90
		if testing.Short() {
			n = 10
		}
		saved = savedSeeds(t)
	}
	for i := range n {
		out = append(out, first+uint64(i))
	}
	return out, saved
}

// savedSeeds returns the seeds that failed once.
func savedSeeds(t *testing.T) (out []savedSeed) {
	text, err := os.ReadFile("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		seed, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		one := savedSeed{seed: seed, plain: true}
		for _, word := range fields[1:] {
			switch word {
			case "all":
				one.plain = false
			case "raft-only":
				one.raftOnly = true
			default:
				t.Fatalf("testdata/seeds.txt: seed %d: unknown word %q, want all or raft-only", seed, word)
			}
		}
		out = append(out, one)
	}
	return out
}

func TestSeeds(t *testing.T) {
	var sum Counts
	one := func(t *testing.T, seed uint64, plain bool, more ...func(*World)) {
		w, err := run(t, seed, plain, "", more...)
		if err != nil {
			flags := ""
			if w.raftOnly {
				flags = " -raft-only"
			}
			t.Fatalf("%v\nrun it again with: go test ./tests/sim -run TestSeeds -seeds 1 -seed %d%s", err, seed, flags)
		}
		sum.add(w.Counts())
		if testing.Verbose() {
			t.Logf("%+v trace %016x: %v", w.profile, w.Trace(), w.Counts())
		}
	}
	some, saved := seeds(t)
	for _, s := range saved {
		var more []func(*World)
		if s.raftOnly {
			more = append(more, (*World).UseRaftOnly)
		}
		t.Run(fmt.Sprint("saved/", s.seed), func(t *testing.T) { one(t, s.seed, s.plain, more...) })
	}
	for _, seed := range some {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { one(t, seed, false) })
	}
	t.Log(&sum)
	if !t.Failed() && *seedsFlag == 0 && !testing.Short() {
		if missing := sum.missing(); missing != "" {
			t.Errorf("the seeds never met: %s", missing)
		}
	}
}

func TestSameSeedSameTrace(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		var traces [2]uint64
		for i := range traces {
			t.Run(fmt.Sprintf("%d/%d", seed, i), func(t *testing.T) {
				w, err := run(t, seed, false, "")
				if err != nil {
					t.Fatal(err)
				}
				traces[i] = w.Trace()
			})
		}
		if traces[0] != traces[1] {
			t.Errorf("seed %d: traces %016x and %016x", seed, traces[0], traces[1])
		}
	}
}

// TestSeedsWithStore runs the product's state machine on a real store in
// addition to the model. Both must return the same results.
func TestSeedsWithStore(t *testing.T) {
	n := 5
	if *seedsFlag > 0 {
		n = *seedsFlag
	} else if testing.Short() {
		n = 2
	}
	for i := range n {
		seed := max(*seedFlag, 1) + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w, err := run(t, seed, true, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Log(w.Counts())
		})
	}
}

// TestProcessEndHintsAreHarmless checks that reports of ended processes, right or wrong, start
// elections and do no harm.
func TestProcessEndHintsAreHarmless(t *testing.T) {
	n := 20
	if *seedsFlag > 0 {
		n = *seedsFlag
	} else if testing.Short() {
		n = 4
	}
	var sum Counts
	right, wrong := 0, 0
	for i := range n {
		seed := max(*seedFlag, 1) + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w, err := run(t, seed, false, "", (*World).UseHints)
			if err != nil {
				t.Fatalf("%v\nrun it again with: go test ./tests/sim -run TestProcessEndHintsAreHarmless -seeds 1 -seed %d", err, seed)
			}
			sum.add(w.Counts())
			r, f := w.Hints()
			right, wrong = right+r, wrong+f
		})
	}
	t.Logf("%d right and %d wrong hints; %v", right, wrong, &sum)
	if !t.Failed() && *seedsFlag == 0 && (right == 0 || wrong == 0) {
		t.Error("there were no hints of one kind")
	}
}

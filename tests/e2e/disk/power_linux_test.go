package disk

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/workload"
)

var (
	cuts = flag.Int("cuts", 2, "how often the power is cut")
	seed = flag.Uint64("seed", 0, "of the load and of the moments of the cuts; 0 draws one")
)

// powerCuts cuts the power of a node under load repeatedly, and checks the
// remaining data after each cut. The error describes the first fault.
func powerCuts(t *testing.T, h *history.History, cuts int, planted ...string) error {
	t.Helper()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -cuts=%d -seed=%d", cuts, *seed)
	rng := rand.New(rand.NewPCG(*seed, 1<<32))
	disk := testkit.NewPowerDisk(t, 1<<30)
	node := testkit.NewNode(t, testkit.NodeOptions{
		DataDir: filepath.Join(disk.Dir(), "data"), Planted: planted,
		Flags: []string{"--disk-read-only-bytes", "16MiB", "--disk-read-only-percent", "1"},
	})
	node.Start()
	node.Push(workload.Types...)
	c := patient(node)
	for i := range cuts {
		load := workload.Start(workload.Options{
			Client: c, History: h, Seed: rng.Uint64(), Patience: testkit.Patience, Prefix: fmt.Sprintf("cut%d-", i),
			Refused: []connect.Code{connect.CodeResourceExhausted}, // a file system that was shut down reports no space
		})
		goesOn(t, node, load, 200+rng.IntN(600))
		time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond)))) // wait for a random part of the load
		disk.Cut()
		node.Kill()
		disk.Restore()
		var faults []error
		if out, code := node.Verify(); code != 0 {
			faults = append(faults, fmt.Errorf("verify: %s", out))
		}
		if err := node.TryStart(); err != nil {
			faults = append(faults, fmt.Errorf("start: %w: %s", err, node.Log()))
			load.Abandon()
			return errors.Join(faults...)
		}
		if err := load.Stop(); err != nil {
			faults = append(faults, fmt.Errorf("a caller was told: %w", err))
		}
		if _, err := workload.ReadBack(t.Context(), c, h); err != nil {
			faults = append(faults, err)
		}
		if len(faults) > 0 {
			return errors.Join(faults...)
		}
	}
	return nil
}

func TestPowerLoss(t *testing.T) {
	testkit.Long(t, "powerloss")
	h := history.New()
	if err := powerCuts(t, h, *cuts); err != nil {
		t.Fatal(err)
	}
	checked, err := h.Linearizable(verdictTime, "account", "chain")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d power cuts; %d acknowledged, %d unknown, %d answered again; %d operations linearizable",
		*cuts, h.Count(history.OK), h.Count(history.Unknown), h.Duplicates(), checked)
}

// TestPowerLossNoticesMissingSync checks that the power is really cut: a node
// that does not sync its log must lose acknowledged data, and the check must
// notice it.
func TestPowerLossNoticesMissingSync(t *testing.T) {
	testkit.Long(t, "powerloss")
	const within = 3
	err := powerCuts(t, history.New(), within, "mutants/catalog/02-no-sync.txt")
	if err == nil {
		t.Fatalf("nothing was synced, and %d power cuts lost nothing", within)
	}
	text := err.Error()
	t.Logf("noticed: %s", text[:min(len(text), 1000)])
}

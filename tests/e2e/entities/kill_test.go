package entities

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// TestTimersSurviveKills kills a node repeatedly and checks that each of many
// repeating timers fires exactly as often as it should, and that the data on
// disk verifies after each kill.
func TestTimersSurviveKills(t *testing.T) {
	testkit.Long(t, "long")
	const entities, times = 150, 12
	kills := 4
	if testing.Short() {
		kills = 2
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	n := testkit.StartNode(t, testkit.NodeOptions{})
	c := n.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 50 * time.Millisecond})
	if _, err := c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/entities/guest"), true); err != nil {
		t.Fatal(err)
	}
	for i := range entities {
		data := fmt.Appendf(nil, `{"name":"again","afterMs":%d,"times":%d}`, 1+i%200, times)
		if _, err := c.Send(t.Context(), client.Command{EntityType: "alarm", EntityID: fmt.Sprintf("e%d", i), Name: "arm", Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	for range kills {
		time.Sleep(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
		n.Kill()
		n.MustVerify()
		n.Start()
	}
	read := func(i int) (s state, sequence uint64) {
		r, err := c.Query(t.Context(), client.Query{EntityType: "alarm", EntityID: fmt.Sprintf("e%d", i), Name: "state"})
		if err == nil {
			err = json.Unmarshal(r.Data, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s, r.Sequence
	}
	for i := range entities {
		n.Await("every timer has rung", func() bool {
			s, sequence := read(i)
			if s.Rung > times || sequence != uint64(s.Rung) {
				t.Fatalf("e%d rang %d times in %d events, want %d", i, s.Rung, sequence, times)
			}
			return s.Rung == times
		})
	}
	n.Stop()
	n.MustVerify()
	n.Start()
	for i := range entities {
		if s, _ := read(i); s.Rung != times {
			t.Errorf("e%d rang %d times in the end, want %d", i, s.Rung, times)
		}
	}
}

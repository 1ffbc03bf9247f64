package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestSendsSurviveAnExport takes an export while entities send messages to each
// other. In the cluster that imports it, every message arrives once and in
// order, and every reply arrives.
func TestSendsSurviveAnExport(t *testing.T) {
	testkit.Long(t, "long")
	if testing.Short() {
		t.Skip("clusters of four nodes: run without -short")
	}
	const sources, sinks = 5, 7
	from := startCluster(t, 3, 8)
	ctx, c := t.Context(), dialNode(t, from[0])
	if _, err := c.Upload(ctx, testkit.BuildGuest(t, "tests/e2e/messages/guest"), true); err != nil {
		t.Fatal(err)
	}
	var emitted atomic.Int64
	var load sync.WaitGroup
	stop := make(chan struct{})
	for w := range sources {
		load.Go(func() {
			c, err := client.Dial("http://" + from[w%3].Addr())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				emit := fmt.Sprintf(`{"first":%d,"sinks":3,"each":2,"answer":true}`, n%(sinks-2))
				if _, err := c.Send(context.Background(), client.Command{EntityType: "source", EntityID: fmt.Sprint("s", w), Name: "emit", Data: []byte(emit)}); err != nil {
					t.Errorf("under load: %v", err)
					return
				}
				emitted.Add(1)
			}
		})
	}
	eventually(t, "entities to send", func() bool { return emitted.Load() > 60 })
	file := export(t, c)
	close(stop)
	load.Wait()
	to := startCluster(t, 1, 5)
	c2 := dialNode(t, to[0])
	if _, err := c2.Import(ctx, bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	ask := func(kind, id string, state any) {
		t.Helper()
		a, err := c2.Query(ctx, client.Query{EntityType: kind, EntityID: id, Name: "state"})
		if err == nil {
			err = json.Unmarshal(a.Data, state)
		}
		if err != nil {
			t.Fatalf("%s %s: %v", kind, id, err)
		}
	}
	total := int64(0)
	eventually(t, "all sends to have arrived, and their answers", func() bool {
		heard := map[string]map[string]int64{}
		for k := range sinks {
			var s struct {
				Heard    map[string]int64
				Disorder int64
			}
			ask("sink", fmt.Sprint(k), &s)
			if s.Disorder != 0 {
				t.Fatalf("sink %d heard sends twice, out of order or not at all: %+v", k, s)
			}
			heard[fmt.Sprint(k)] = s.Heard
		}
		total = 0
		for w := range sources {
			var s struct {
				Sent              map[string]int64
				Answers, Disorder int64
			}
			name := fmt.Sprint("s", w)
			ask("source", name, &s)
			sent := int64(0)
			for sink, n := range s.Sent {
				if heard[sink][name] > n {
					t.Fatalf("sink %s heard %d of %d sends of %s", sink, heard[sink][name], n, name)
				}
				if heard[sink][name] < n {
					return false
				}
				sent += n
			}
			if s.Disorder != 0 || s.Answers > sent {
				t.Fatalf("%s sent %d: %+v", name, sent, s)
			}
			if s.Answers < sent {
				return false
			}
			total += sent
		}
		return true
	})
	if total < 60*6 {
		t.Errorf("only %d sends were in the export", total)
	}
}

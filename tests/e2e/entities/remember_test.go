package entities

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

var rememberEntities = flag.Int("remember.entities", 2000, "how many entities of one shard the test of remembered entities starts again")

// TestAlwaysOnEntitiesSurviveRestarts checks that after a restart the always-on
// entities of a type are resident without a request, except entities that were
// deleted or stopped.
func TestAlwaysOnEntitiesSurviveRestarts(t *testing.T) {
	entities := *rememberEntities
	if testing.Short() {
		entities = 300
	}
	n := &node{t: t, dir: t.TempDir(), shards: 1, module: "tests/e2e/entities/guest"}
	n.open()
	began := time.Now()
	stream := n.c.Stream(client.StreamOptions{})
	results := make(chan error, entities)
	for i := range entities {
		err := stream.Send(t.Context(), client.Command{EntityType: "keeper", EntityID: fmt.Sprintf("e%06d", i), Name: "add", Data: []byte(`{"amount":1}`)},
			func(_ client.Reply, err error) { results <- err })
		if err != nil {
			t.Fatal(err)
		}
	}
	for range entities {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	made := time.Since(began)
	if _, err := n.c.Send(t.Context(), client.Command{EntityType: "keeper", EntityID: "e000000", Name: "leave"}); err != nil {
		t.Fatal(err)
	}
	api := n.api()
	if _, err := api.PassivateEntity(t.Context(), connect.NewRequest(&entityv1.PassivateEntityRequest{EntityType: "keeper", EntityId: "e000001"})); err != nil {
		t.Fatal(err)
	}
	if _, err := api.DeleteEntity(t.Context(), connect.NewRequest(&entityv1.DeleteEntityRequest{EntityType: "keeper", EntityId: "e000002"})); err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.start()
	began = time.Now()
	for end := began.Add(time.Duration(60+entities/500) * time.Second); ; time.Sleep(50 * time.Millisecond) {
		in := n.residents("keeper")
		if in == entities-3 {
			break
		}
		if in > entities-3 || time.Now().After(end) {
			t.Fatalf("%d entities are in memory, want %d", in, entities-3)
		}
	}
	t.Logf("%d entities made in %v, in memory again %v after the start; %s", entities, made, time.Since(began), footprint())
	for i, id := range []string{"e000000", "e000001", "e000002"} {
		e, err := n.c.Entity(t.Context(), "keeper", id)
		if err != nil || e.GetResident() {
			t.Errorf("%s (%d): %v %v", id, i, e, err)
		}
	}
	if _, err := n.c.Send(t.Context(), client.Command{EntityType: "keeper", EntityID: "e000001", Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
		t.Fatal(err)
	}
	if in := n.residents("keeper"); in != entities-2 {
		t.Errorf("%d entities are in memory after one was asked", in)
	}
}

// residents returns the number of resident entities of a type, according to the
// metrics.
func (n *node) residents(entityType string) (count int) {
	n.t.Helper()
	const name = "hostd_type_entities_resident{"
	for _, line := range strings.Split(n.metrics(), "\n") {
		if strings.HasPrefix(line, name) && strings.Contains(line, `entity_type="`+entityType+`"`) {
			var v float64
			if _, err := fmt.Sscan(line[strings.LastIndex(line, " "):], &v); err != nil {
				n.t.Fatal(err)
			}
			count += int(v)
		}
	}
	return count
}

// footprint returns the resident memory of this process.
func footprint() string {
	text, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "VmRSS") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return "VmRSS unknown"
}

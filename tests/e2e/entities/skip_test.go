package entities

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
)

// TestTimersAreListedAndSkipped checks that an operator can list timers and
// cancel one by name. Repeating the request changes nothing, and the name of a
// timer that is not set causes no error. The entity lists what operators did,
// also after a deletion and a restart.
func TestTimersAreListedAndSkipped(t *testing.T) {
	n := newNode(t)
	const hour = 3_600_000
	n.send("a", "arm", arm{"first", hour, 1})
	n.send("a", "arm", arm{"second", 2 * hour, 1})
	n.send("b", "arm", arm{"other", hour, 1})
	names := func() (out string) {
		e, err := n.c.Entity(t.Context(), "alarm", "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, timer := range e.GetTimers() {
			out += timer.GetName() + ":" + timer.GetCommand() + " "
		}
		return out
	}
	if got := names(); got != "first:ring second:ring " {
		t.Errorf("the timers are %s", got)
	}
	api := entityv1connect.NewEntityServiceClient(http.DefaultClient, "http://"+n.n.Addr())
	for _, timer := range []string{"first", "first", "none"} {
		_, err := api.SkipTimer(t.Context(), connect.NewRequest(&entityv1.SkipTimerRequest{
			EntityType: "alarm", EntityId: "a", Timer: timer, CommandId: "skip-" + timer,
		}))
		if err != nil {
			t.Errorf("skip %s: %v", timer, err)
		}
	}
	if got := names(); got != "second:ring " {
		t.Errorf("after one is skipped the timers are %s", got)
	}
	n.remove("a", "delete-it")
	n.stop()
	n.start()
	e, err := n.c.Entity(t.Context(), "alarm", "a")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, a := range e.GetOperatorActions() {
		got += fmt.Sprintf("%s %s %s at %d, ", a.GetKind(), a.GetTimer(), a.GetCommandId(), a.GetSequence())
		if at := a.GetRecordedAt().AsTime(); time.Since(at).Abs() > time.Hour {
			t.Errorf("an act of %v", at)
		}
	}
	if want := "delete  delete-it at 1, skip-timer none skip-none at 0, skip-timer first skip-first at 0, "; got != want {
		t.Errorf("the history tells %s, want %s", got, want)
	}
}

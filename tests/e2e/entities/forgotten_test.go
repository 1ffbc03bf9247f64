package entities

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// TestForgottenRetryIsNotExecuted checks commands that are older than the
// idempotency window: a command that the entity may have executed and forgotten
// is not executed again if the caller states the age of its first attempt,
// before and after a restart. A command inside the window gets its stored
// reply, and the first attempt of a command is executed.
func TestForgottenRetryIsNotExecuted(t *testing.T) {
	const commands, window = 10_200, 10_000
	began := time.Now()
	n := newNode(t)
	n.remove("x", "long-ago")
	n.fill("alarm", 0, commands)
	total := int64(commands)
	retry := func(i int) client.Command {
		c := adding("alarm")(i)
		c.FirstTried = began
		return c
	}
	for life := range 2 {
		for _, i := range []int{5, commands + 1000} { // outside the window, and never sent
			if r, err := n.c.Send(t.Context(), retry(i)); client.CodeOf(err) != connect.CodeAborted || !client.OutcomeUnknown(err) {
				t.Errorf("life %d, a retry of command %d: %+v %v", life, i, r, err)
			}
		}
		for _, i := range []int{commands - window/2, commands - 1} {
			if r, err := n.c.Send(t.Context(), retry(i)); err != nil || !r.Duplicate || r.Sequence != uint64(i+1) {
				t.Errorf("life %d, a retry of command %d: %+v %v", life, i, r, err)
			}
		}
		if code, text := n.post(5, time.Since(began)); code != http.StatusConflict || !strings.Contains(text, `"aborted"`) || !strings.Contains(text, "COMMAND_OUTCOME_UNKNOWN") {
			t.Errorf("life %d, a retry over HTTP: %d %s", life, code, text)
		}
		if s, _ := n.state("x"); s.Total != total {
			t.Errorf("life %d: the total is %d, want %d", life, s.Total, total)
		}
		if m := n.metrics(); !strings.Contains(m, "\nhostd_retries_rejected_total 3\n") {
			t.Errorf("life %d: the metrics do not say that 3 retries were refused", life)
		}
		n.refusesActs("x", "long-ago", time.Since(began))
		// First attempts are executed over this path, too, and retries on an entity
		// that has forgotten nothing.
		if code, text := n.post(2*commands+life, 0); code != http.StatusOK {
			t.Errorf("life %d, a first attempt over HTTP: %d %s", life, code, text)
		}
		total++
		young := retry(life)
		young.EntityID = "young"
		if r, err := n.c.Send(t.Context(), young); err != nil || r.Duplicate {
			t.Errorf("life %d, a retry to an entity that remembers all: %+v %v", life, r, err)
		}
		if life == 0 {
			n.stop()
			n.start()
		}
	}
}

// post sends an adding command to x over plain HTTP. ago is the age of the
// first attempt; 0 means that this is the first attempt.
func (n *node) post(i int, ago time.Duration) (code int, text string) {
	n.t.Helper()
	cmd := adding("alarm")(i)
	body := `{"entityType":"alarm","entityId":"x","command":"add","json":{"amount":1},"commandId":"` + cmd.ID + `","firstAttemptAge":"` + strconv.FormatFloat(ago.Seconds(), 'f', 3, 64) + `s"}`
	res, err := http.Post("http://"+n.n.Addr()+"/hostd.entity.v1.EntityService/SendCommand", "application/json", strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

// refusesActs checks that a deletion and the skip of a timer are not executed
// if they were first tried so long ago that the entity may have forgotten them.
func (n *node) refusesActs(id, command string, ago time.Duration) {
	n.t.Helper()
	before, _ := n.state(id)
	age := durationpb.New(ago)
	_, deleted := n.api().DeleteEntity(n.t.Context(), connect.NewRequest(&entityv1.DeleteEntityRequest{
		EntityType: "alarm", EntityId: id, CommandId: command, FirstAttemptAge: age,
	}))
	_, skipped := n.api().SkipTimer(n.t.Context(), connect.NewRequest(&entityv1.SkipTimerRequest{
		EntityType: "alarm", EntityId: id, Timer: "none", CommandId: command, FirstAttemptAge: age,
	}))
	for act, err := range map[string]error{"deletion": deleted, "skipped timer": skipped} {
		if connect.CodeOf(err) != connect.CodeAborted {
			n.t.Errorf("a late %s: %v", act, err)
		}
	}
	if s, _ := n.state(id); s != before {
		n.t.Errorf("%+v is %+v after refused requests", before, s)
	}
	_, err := n.api().DeleteEntity(n.t.Context(), connect.NewRequest(&entityv1.DeleteEntityRequest{EntityType: "alarm", EntityId: id, FirstAttemptAge: age}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		n.t.Errorf("an age without an id: %v", err)
	}
}

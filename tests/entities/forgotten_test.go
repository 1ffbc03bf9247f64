package entities

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
)

// TestForgottenRetries: what an entity has carried out and forgotten is not
// carried out again for a caller that says how long ago it tried, before and
// after the node started again; what is remembered is answered, and what was
// never tried is carried out.
func TestForgottenRetries(t *testing.T) {
	const commands, window = 10_200, 10_000
	began := time.Now()
	n := newNode(t)
	n.fill("alarm", 0, commands)
	total := int64(commands)
	retry := func(i int) client.Command {
		c := adding("alarm")(i)
		c.FirstTried = began
		return c
	}
	for life := range 2 {
		for _, i := range []int{5, commands + 1000} { // forgotten, and never seen
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
		if m := n.metrics(); !strings.Contains(m, "\nhostd_retries_refused_total 3\n") {
			t.Errorf("life %d: the metrics do not say that 3 retries were refused", life)
		}
		// First attempts, here and where nothing is forgotten.
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

// post sends a command of adding to x over plain HTTP, which was first tried
// some time ago, or never.
func (n *node) post(i int, ago time.Duration) (code int, text string) {
	n.t.Helper()
	cmd := adding("alarm")(i)
	body := `{"entityType":"alarm","entityId":"x","command":"add","json":{"amount":1},"commandId":"` + cmd.ID + `","firstAttemptAgeMs":` + strconv.FormatInt(ago.Milliseconds(), 10) + `}`
	res, err := http.Post("http://"+n.n.Addr()+"/hostd.entity.v1.EntityService/Send", "application/json", strings.NewReader(body))
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

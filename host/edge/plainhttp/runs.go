package plainhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
)

// runPrefix is the prefix of the paths of runs.
const runPrefix = "/w/"

// runPaths describes the paths for errors.
const runPaths = "the path is none of /w/TYPE/ID, /w/TYPE/ID/signals/NAME, /w/TYPE/ID/cancel, /w/TYPE/ID/terminate and /w/TYPE/ID/history; an id of . or .. is for the API alone"

// Parts of the paths after the id of a run.
const (
	runItself    = ""
	runSignals   = "signals"
	runCancel    = "cancel"
	runTerminate = "terminate"
	runHistory   = "history"
)

// runTarget is the run that a path names, and the part of the run.
type runTarget struct {
	entityType, id string
	what           string // runItself or another part
	signal         string
	garbled        bool // a part is not valid UTF-8
}

func runTargetOf(u *url.URL) (t runTarget, ok bool) {
	parts, garbled, ok := pathParts(u, runPrefix)
	if !ok || len(parts) < 2 || len(parts) > 4 {
		return t, false
	}
	t = runTarget{entityType: parts[0], id: parts[1], garbled: garbled}
	if len(parts) == 2 {
		return t, true
	}
	t.what = parts[2]
	if len(parts) == 4 {
		t.signal = parts[3]
		return t, t.what == runSignals
	}
	return t, t.what == runCancel || t.what == runTerminate || t.what == runHistory
}

// serveRun serves the paths of runs.
func (h *handler) serveRun(w http.ResponseWriter, r *http.Request) {
	t, ok := runTargetOf(r.URL)
	if !ok {
		fail(w, http.StatusNotFound, problem{Code: "not_found", Message: runPaths})
		return
	}
	err := checkHeaders(r.Header)
	if t.garbled {
		err = errors.New("the path is not UTF-8") // as in ServeHTTP
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if err == nil && r.Header.Get(name) != "" {
			err = fmt.Errorf("runs take no %s", name)
		}
	}
	if err == nil {
		err = plainBody(r)
	}
	if err != nil {
		refusal(w, err)
		return
	}
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case t.what == runItself && reading:
		h.getRun(w, r, t)
	case t.what == runHistory && reading:
		h.runHistory(w, r, t)
	case t.what == runItself && r.Method != http.MethodPost:
		refuseMethod(w, "GET, HEAD, POST")
	case t.what == runHistory:
		refuseMethod(w, "GET, HEAD")
	case r.Method != http.MethodPost:
		refuseMethod(w, "POST")
	case t.what == runItself:
		h.startRun(w, r, t)
	default:
		h.commandRun(w, r, t)
	}
}

// run is a run in a response of the API.
type run struct {
	Status      string          `json:"status"`
	Steps       uint32          `json:"steps"`
	WaitsFor    []string        `json:"waitsFor,omitempty"`
	StartedAt   string          `json:"startedAt,omitempty"`
	UpdatedAt   string          `json:"updatedAt,omitempty"`
	Sequence    uint64          `json:"sequence,string"`
	Result      json.RawMessage `json:"result,omitempty"`
	Code        string          `json:"code,omitempty"`
	Message     string          `json:"message,omitempty"`
	Quarantined bool            `json:"quarantined,omitempty"`
	LastError   string          `json:"lastError,omitempty"`
}

// waitMargin is the time that a call gets in addition to the wait for a run.
const waitMargin = 5 * time.Second

// withWait returns the request with a deadline for its wait, and the wait in the
// form of the API; empty if the request has none.
func withWait(r *http.Request, given url.Values) (*http.Request, string, error) {
	if !given.Has("wait") {
		return r, "", nil
	}
	wait, err := time.ParseDuration(given.Get("wait"))
	if err != nil || wait < 0 || wait > time.Hour {
		return r, "", fmt.Errorf("wait is %.64q, must be a duration of at most 1h, such as 30s", given.Get("wait"))
	}
	r = r.Clone(r.Context())
	r.Header.Set("Connect-Timeout-Ms", strconv.FormatInt((wait+waitMargin).Milliseconds(), 10))
	return r, fmt.Sprintf("%.3fs", wait.Seconds()), nil
}

// startRun converts a request to a StartWorkflow.
func (h *handler) startRun(w http.ResponseWriter, r *http.Request, t runTarget) {
	given, err := parameters(r, "wait")
	req := map[string]any{"entityType": t.entityType, "entityId": t.id}
	if err == nil {
		err = addKey(req, r)
	}
	var wait string
	if err == nil {
		r, wait, err = withWait(r, given)
	}
	if err != nil {
		refusal(w, err)
		return
	}
	if wait != "" {
		req["wait"] = wait
	}
	h.askRun(w, r, workflowv1connect.WorkflowServiceStartWorkflowProcedure, req, true)
}

// getRun converts a request to a GetWorkflow.
func (h *handler) getRun(w http.ResponseWriter, r *http.Request, t runTarget) {
	given, err := parameters(r, "wait")
	var wait string
	if err == nil {
		r, wait, err = withWait(r, given)
	}
	if err != nil {
		refusal(w, err)
		return
	}
	req := map[string]any{"entityType": t.entityType, "entityId": t.id}
	if wait != "" {
		req["wait"] = wait
	}
	h.askRun(w, r, workflowv1connect.WorkflowServiceGetWorkflowProcedure, req, false)
}

// askRun makes a call that returns a run, and writes the run's result, error or
// status.
func (h *handler) askRun(w http.ResponseWriter, r *http.Request, procedure string, req map[string]any, withBody bool) {
	var res struct {
		Run run `json:"run"`
	}
	if !h.callRun(w, r, procedure, req, withBody, func(body []byte) error { return json.Unmarshal(body, &res) }) {
		return
	}
	one := &res.Run
	one.Status = strings.ToLower(one.Status)
	w.Header().Set("ETag", tag(one.Sequence))
	w.Header().Set("Hostd-Run-Status", one.Status)
	switch {
	case one.Status == "failed":
		fail(w, http.StatusUnprocessableEntity, problem{Code: one.Code, Message: one.Message})
	case one.Status == "completed" && one.Result == nil:
		w.WriteHeader(http.StatusNoContent)
	case one.Status == "completed":
		write(w, jsonType, compact(one.Result))
	default:
		body, err := json.Marshal(one)
		if err != nil {
			panic(err) // cannot happen: its JSON was just read
		}
		writeStatus(w, http.StatusAccepted, jsonType, body)
	}
}

// compact returns JSON text of the API without spaces, because the API puts them
// at random places.
func compact(text []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, text) != nil {
		return text // not JSON, which the API never sends
	}
	return out.Bytes()
}

// callRun makes a call in the JSON form, because numbers keep their digits in it.
// The body of the request, if it is needed, becomes the member data, and is read
// only after the call was admitted.
func (h *handler) callRun(w http.ResponseWriter, r *http.Request, procedure string, req map[string]any, withBody bool, read func(body []byte) error) bool {
	body := &content{h: h, r: r}
	defer body.end()
	return h.ask(w, r, procedure, jsonType, func() (io.Reader, error) {
		if withBody && r.Body != nil {
			data, err := body.whole()
			if err != nil {
				return nil, err
			}
			req["data"] = data
		}
		whole, err := json.Marshal(req)
		return bytes.NewReader(whole), err
	}, read)
}

// addKey adds the idempotency key of a request.
func addKey(req map[string]any, r *http.Request) error {
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	age, err := firstAttempt(r)
	if key != "" {
		req["commandId"] = key
	}
	if age != nil {
		req["firstAttemptAge"] = strconv.FormatFloat(age.AsDuration().Seconds(), 'f', 9, 64) + "s"
	}
	return err
}

// commandRun converts a request to a SignalWorkflow, CancelWorkflow or
// TerminateWorkflow.
func (h *handler) commandRun(w http.ResponseWriter, r *http.Request, t runTarget) {
	_, err := parameters(r)
	req := map[string]any{"entityType": t.entityType, "entityId": t.id}
	if err == nil {
		err = addKey(req, r)
	}
	if err != nil {
		refusal(w, err)
		return
	}
	procedure := workflowv1connect.WorkflowServiceSignalWorkflowProcedure
	switch t.what {
	case runCancel:
		procedure = workflowv1connect.WorkflowServiceCancelWorkflowProcedure
	case runTerminate:
		procedure = workflowv1connect.WorkflowServiceTerminateWorkflowProcedure
	default:
		req["name"] = t.signal
	}
	if h.callRun(w, r, procedure, req, t.what == runSignals, func([]byte) error { return nil }) {
		w.WriteHeader(http.StatusNoContent)
	}
}

// runHistory converts a request to a GetWorkflowHistory, whose response it passes
// on.
func (h *handler) runHistory(w http.ResponseWriter, r *http.Request, t runTarget) {
	given, err := parameters(r, "page_size", "page_token", "newest_first")
	req := map[string]any{"entityType": t.entityType, "entityId": t.id}
	if err == nil && given.Has("page_size") {
		var size uint64
		size, err = strconv.ParseUint(given.Get("page_size"), 10, 32)
		req["pageSize"] = size
		if err != nil {
			err = fmt.Errorf("page_size is %.64q, must be a number", given.Get("page_size"))
		}
	}
	if err == nil && given.Has("newest_first") {
		var newest bool
		newest, err = strconv.ParseBool(given.Get("newest_first"))
		req["newestFirst"] = newest
		if err != nil {
			err = fmt.Errorf("newest_first is %.64q, must be true or false", given.Get("newest_first"))
		}
	}
	if err != nil {
		refusal(w, err)
		return
	}
	if token := given.Get("page_token"); token != "" {
		req["pageToken"] = token
	}
	var page []byte
	if h.callRun(w, r, workflowv1connect.WorkflowServiceGetWorkflowHistoryProcedure, req, false, func(body []byte) error {
		page = compact(body)
		return nil
	}) {
		write(w, jsonType, page)
	}
}

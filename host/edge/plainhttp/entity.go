package plainhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/request"
)

const (
	protoType = "application/proto"
	jsonType  = "application/json"
	bytesType = "application/octet-stream"
)

// command converts a request to a SendCommand.
func (h *handler) command(w http.ResponseWriter, r *http.Request, t target) {
	req := &entityv1.SendCommandRequest{EntityType: t.entityType, EntityId: t.id, Command: t.name}
	_, err := parameters(r)
	if err == nil {
		err = plainBody(r)
	}
	var want expectation
	if err == nil {
		want, err = parsePreconditions(r)
	}
	if err == nil {
		req.CommandId, err = idempotencyKey(r)
	}
	if err == nil {
		req.FirstAttemptAge, err = firstAttempt(r)
	}
	if err != nil {
		refusal(w, err)
		return
	}
	var res entityv1.SendCommandResponse
	body := &content{h: h, r: r, twice: want.left > 0}
	defer body.end()
	// The reply has the form of the payload, which is bytes here.
	ok := h.repeatedly(w, r, entityv1connect.EntityServiceSendCommandProcedure, protoType, func() (io.Reader, error) {
		req.ExpectedSequence = want.next
		return body.after(req)
	}, func(body []byte) error { return proto.Unmarshal(body, &res) }, want.again)
	if !ok {
		return
	}
	header := w.Header()
	header.Set("ETag", tag(res.GetSequence()))
	header.Set("Hostd-Event-Count", strconv.FormatUint(uint64(res.GetEventCount()), 10))
	header.Set("Hostd-Fuel", strconv.FormatUint(res.GetFuel(), 10))
	header.Set("Hostd-Node-Id", res.GetNodeId())
	if res.GetDuplicate() {
		header.Set("Hostd-Duplicate", "true")
	}
	h.reply(w, r, t.entityType, res.GetData())
}

// query converts a request to a QueryEntity. A small payload can be a URL parameter; a
// large one is the body of a POST.
func (h *handler) query(w http.ResponseWriter, r *http.Request, t target) {
	req := &entityv1.QueryEntityRequest{EntityType: t.entityType, EntityId: t.id, Query: t.name}
	given, err := parameters(r, "payload", "consistency")
	if err == nil {
		err = plainBody(r)
	}
	if err == nil {
		switch c := given.Get("consistency"); strings.ToLower(c) {
		case "", "linearizable":
		case "stale":
			req.Consistency = entityv1.Consistency_STALE
		default:
			err = fmt.Errorf("consistency must be linearizable or stale, got %q", c)
		}
	}
	if err == nil && given.Has("payload") && r.Method == http.MethodPost {
		err = errors.New("the payload of a POST must be its body")
	}
	if err != nil {
		refusal(w, err)
		return
	}
	var res entityv1.QueryEntityResponse
	body := &content{h: h, r: r}
	defer body.end()
	if !h.unary(w, r, entityv1connect.EntityServiceQueryEntityProcedure, &res, func() (io.Reader, error) {
		if r.Method == http.MethodPost {
			return body.after(req)
		}
		req.Payload = &entityv1.QueryEntityRequest_Data{Data: []byte(given.Get("payload"))}
		whole, err := proto.Marshal(req)
		return bytes.NewReader(whole), err
	}) {
		return
	}
	w.Header().Set("ETag", tag(res.GetSequence()))
	w.Header().Set("Hostd-Fuel", strconv.FormatUint(res.GetFuel(), 10))
	h.reply(w, r, t.entityType, res.GetData())
}

// state converts a request to a GetState.
func (h *handler) state(w http.ResponseWriter, r *http.Request, t target) {
	req := map[string]string{"entityType": t.entityType, "entityId": t.id}
	given, err := parameters(r, "at")
	if err == nil && given.Has("at") {
		var at uint64
		if at, err = strconv.ParseUint(given.Get("at"), 10, 63); err != nil {
			err = fmt.Errorf("at must be a sequence, got %q", given.Get("at"))
		}
		req["atSequence"] = strconv.FormatUint(at, 10)
	}
	var match, none preconditions
	if err == nil {
		match, err = preconditionsOf(r, "If-Match")
	}
	if err == nil {
		none, err = preconditionsOf(r, "If-None-Match")
	}
	if err != nil {
		refusal(w, err)
		return
	}
	var res struct {
		JSON     json.RawMessage `json:"json"`
		Data     []byte          `json:"data"`
		Sequence uint64          `json:"sequence,string"`
		Deleted  bool            `json:"deleted"`
	}
	// Use JSON, because the numbers of the state keep their digits in it.
	if !h.ask(w, r, entityv1connect.EntityServiceGetStateProcedure, jsonType, func() (io.Reader, error) {
		whole, err := json.Marshal(req)
		return bytes.NewReader(whole), err
	},
		func(body []byte) error { return json.Unmarshal(body, &res) }) {
		return
	}
	if res.Sequence == 0 {
		fail(w, http.StatusNotFound, problem{Code: "not_found", Message: "the entity does not exist"})
		return
	}
	w.Header().Set("ETag", tag(res.Sequence))
	if res.Deleted {
		fail(w, http.StatusNotFound, problem{Code: "not_found", Reason: "DELETED", Message: "the entity was deleted; its next command starts a new life"})
		return
	}
	if match.given && !match.match(res.Sequence) {
		fail(w, http.StatusPreconditionFailed, problem{Code: "failed_precondition", Message: "the entity has a different ETag", ActualSequence: strconv.FormatUint(res.Sequence, 10)})
		return
	}
	if !match.given && none.match(res.Sequence) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	switch {
	case res.JSON != nil:
		write(w, jsonType, res.JSON)
	case len(res.Data) > 0 && json.Valid(res.Data): // JSON text that is too large for a JSON value of the API
		write(w, h.contentType(r, t.entityType), res.Data)
	case len(res.Data) > 0:
		write(w, bytesType, res.Data)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// unary is ask for protobuf messages.
func (h *handler) unary(w http.ResponseWriter, r *http.Request, procedure string, into proto.Message, request func() (io.Reader, error)) bool {
	return h.ask(w, r, procedure, protoType, request, func(body []byte) error { return proto.Unmarshal(body, into) })
}

// ask makes a call and reads its response. It returns false if the call failed;
// the error response is already written then.
func (h *handler) ask(w http.ResponseWriter, r *http.Request, procedure, contentType string, body func() (io.Reader, error), read func(body []byte) error) bool {
	return h.repeatedly(w, r, procedure, contentType, body, read, func(string) bool { return false })
}

// repeatedly is like ask, but if the entity is at a different sequence than
// expected, it retries the call as long as again accepts the actual sequence.
func (h *handler) repeatedly(w http.ResponseWriter, r *http.Request, procedure, contentType string, body func() (io.Reader, error), read func(body []byte) error, again func(actual string) bool) bool {
	for {
		got := newAnswer(w)
		h.api.ServeHTTP(got, call(r, procedure, contentType, &lazy{make: body}))
		got.WriteHeader(http.StatusOK) // an empty message writes neither a header nor a body
		if got.status != http.StatusOK {
			if again(actualOf(got.status, got.body.Bytes())) {
				continue
			}
			writeError(w, got.status, got.header, got.body.Bytes())
			return false
		}
		if err := read(got.body.Bytes()); err != nil {
			fail(w, http.StatusInternalServerError, problem{Code: "internal", Message: "internal error"})
			return false
		}
		return true
	}
}

// reply writes the reply of an entity.
func (h *handler) reply(w http.ResponseWriter, r *http.Request, entityType string, data []byte) {
	if len(data) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	write(w, h.contentType(r, entityType), data)
}

func write(w http.ResponseWriter, contentType string, data []byte) {
	writeStatus(w, http.StatusOK, contentType, data)
}

func writeStatus(w http.ResponseWriter, status int, contentType string, data []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache") // clients must revalidate, by the tag
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // an error means that the client has gone
}

// contentType returns the content type of a type's payloads.
func (h *handler) contentType(r *http.Request, entityType string) string {
	if kind, err := h.opts.Types.Encoding(r.Context(), entityType); err == nil && kind == request.JSON {
		return jsonType
	}
	return bytesType
}

// plainBody returns an error if the body has a content encoding.
func plainBody(r *http.Request) error {
	if kind := r.Header.Get("Content-Encoding"); kind != "" && kind != "identity" {
		return fmt.Errorf("the body has the Content-Encoding %q: send it uncompressed", kind)
	}
	return nil
}

// idempotencyKey returns the Idempotency-Key, which may be quoted.
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
func idempotencyKey(r *http.Request) (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) > 1 {
		return "", errors.New("the header Idempotency-Key is set twice")
	}
	if len(values) == 0 {
		return "", nil
	}
	key := strings.TrimSpace(values[0])
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	if key == "" {
		return "", errors.New("the header Idempotency-Key is empty")
	}
	return key, nil
}

// firstAttempt returns how long ago, in milliseconds, the command was first
// tried under its key.
func firstAttempt(r *http.Request) (*durationpb.Duration, error) {
	text := r.Header.Get("Hostd-First-Attempt-Age")
	if text == "" {
		return nil, nil
	}
	age, err := time.ParseDuration(text)
	if err != nil || age < 0 {
		return nil, errors.New("the header Hostd-First-Attempt-Age must be a duration such as 1500ms or 30s")
	}
	return durationpb.New(age), nil
}

package plainhttp

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
)

// Flags of a Connect stream message, and the length of its prefix.
// https://connectrpc.com/docs/protocol/#streaming-rpcs
const (
	flagCompressed = 1
	flagEnd        = 2
	prefixBytes    = 5
)

// event is the JSON data of an event that is sent to a browser.
type event struct {
	EntityID     string              `json:"entityId"`
	Sequence     uint64              `json:"sequence,string"`
	Type         string              `json:"type"`
	StoredType   string              `json:"storedType,omitempty"` // the type before upcasting
	JSON         json.RawMessage     `json:"json,omitempty"`       // if the type's encoding is JSON
	Data         []byte              `json:"data,omitempty"`       // otherwise
	CommandID    string              `json:"commandId"`
	RecordedAt   string              `json:"recordedAt"`
	Tags         []string            `json:"tags,omitempty"`
	ModuleDigest string              `json:"moduleDigest"`
	Principal    *entityv1.Principal `json:"principal,omitempty"`
	Skipped      uint64              `json:"skipped,omitempty,string"` // compacted events before this one
}

// maxEventShards is the largest number of shards of a stream whose cursor always
// fits into the Last-Event-ID header. A position needs at most 12 bytes, or 16
// characters of base64, up to 2^35 entries of a shard. Requests have 16 KiB for
// all headers, and proxies often accept only 8 KiB for one.
const maxEventShards = 500

// eventShards returns how many shards the cursor of a stream has positions for.
func (h *Handler) eventShards(asked []uint32) int {
	if len(asked) > 0 {
		return len(asked)
	}
	return int(h.opts.Entities.Shards())
}

// events converts a request to a Subscribe, and sends the events in the format
// of a browser's EventSource.
// https://html.spec.whatwg.org/multipage/server-sent-events.html
func (h *Handler) events(w http.ResponseWriter, r *http.Request, entityType string) {
	given, err := parameters(r, "tag", "cursor", "follow", "skip_truncated", "shards", "upcast")
	follow, skip, upcast := true, false, false
	if err == nil {
		follow, err = flagOf("follow", given.Get("follow"), true)
	}
	if err == nil {
		skip, err = flagOf("skip_truncated", given.Get("skip_truncated"), false)
	}
	if err == nil {
		upcast, err = flagOf("upcast", given.Get("upcast"), false)
	}
	var shards []uint32
	if err == nil {
		shards, err = shardsOf(given.Get("shards"))
	}
	if err != nil {
		refusal(w, err)
		return
	}
	if n := h.eventShards(shards); follow && n > maxEventShards {
		refusal(w, fmt.Errorf("a cursor of %d shards exceeds the limit of the header Last-Event-ID, so a browser could not resume after a lost connection: "+
			"open several streams of at most %d shards each, with shards=1,2,... (the cluster has %d shards), read the events once with follow=false, or use the API's Subscribe", n, maxEventShards, h.opts.Entities.Shards()))
		return
	}
	cursor := r.Header.Get("Last-Event-ID")
	if cursor == "" {
		cursor = given.Get("cursor")
	}
	req := &entityv1.SubscribeRequest{EntityType: entityType, Tag: given.Get("tag"), Cursor: cursor, Follow: follow, Upcast: upcast, SkipTruncated: skip, Shards: shards, AsData: true}
	s := &eventWriter{conn: w, header: http.Header{}, isJSON: func() bool { return h.contentType(r, entityType) == jsonType }}
	ended := make(chan struct{})
	var beat sync.WaitGroup
	beat.Go(func() { s.keepAlive(h.opts.KeepAlive, ended) })
	h.api.ServeHTTP(s, call(r, entityv1connect.EntityServiceSubscribeProcedure, "application/connect+proto", &lazy{make: func() (io.Reader, error) {
		message, err := proto.Marshal(req)
		out := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
		return bytes.NewReader(append(out, message...)), err
	}}))
	close(ended)
	beat.Wait()
	s.close()
}

// flagOf parses a boolean parameter.
func flagOf(name, text string, standard bool) (bool, error) {
	switch text {
	case "":
		return standard, nil
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("%s must be true or false, got %q", name, text)
}

// shardsOf parses shard numbers separated by commas; an empty text means all
// shards. The API limits their number and rejects shards that do not exist.
func shardsOf(text string) (out []uint32, err error) {
	if text == "" {
		return nil, nil
	}
	for _, one := range strings.Split(text, ",") {
		n, err := strconv.ParseUint(one, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("shards must be numbers separated by commas, got %.64q", text)
		}
		out = append(out, uint32(n))
	}
	return out, nil
}

// eventWriter converts the messages of a Connect stream to server-sent events as
// they are written.
type eventWriter struct {
	conn   http.ResponseWriter
	header http.Header // header of the Connect stream
	isJSON func() bool // payloads are JSON

	mu      sync.Mutex
	status  int
	began   bool // the response headers were sent
	wrote   bool // since the last tick of keepAlive
	ended   bool
	json    bool
	rest    bytes.Buffer // an incomplete message, or the body of an error
	trouble error        // the error that made the connection unusable
}

func (s *eventWriter) Header() http.Header         { return s.header }
func (s *eventWriter) Unwrap() http.ResponseWriter { return s.conn }

func (s *eventWriter) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status == 0 {
		s.status = status
	}
}

// Write accepts a part of the stream. The server that writes them limits the size
// of messages.
func (s *eventWriter) Write(p []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest.Write(p)
	if s.status != http.StatusOK {
		return len(p), nil
	}
	for s.rest.Len() >= prefixBytes && s.trouble == nil {
		head := s.rest.Bytes()[:prefixBytes]
		flags, size := head[0], int(binary.BigEndian.Uint32(head[1:]))
		if s.rest.Len() < prefixBytes+size {
			break
		}
		s.rest.Next(prefixBytes)
		if err := s.message(flags, s.rest.Next(size)); err != nil {
			s.trouble = err
		}
	}
	return len(p), s.trouble
}

// Flush implements http.Flusher. It sends the headers and everything complete.
// Like net/http it assumes status 200 if none is set, because a stream without
// events flushes its headers and writes nothing.
func (s *eventWriter) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status == 0 {
		s.status = http.StatusOK
	}
	if s.status == http.StatusOK && !s.ended {
		s.begin()
		s.flush()
	}
}

func (s *eventWriter) flush() {
	if err := http.NewResponseController(s.conn).Flush(); err != nil && s.trouble == nil {
		s.trouble = err
	}
}

// message converts and sends one message.
func (s *eventWriter) message(flags byte, data []byte) error {
	if flags&flagCompressed != 0 {
		return errors.New("the message is compressed, which is not supported")
	}
	if flags&flagEnd != 0 {
		return s.end(data)
	}
	var m entityv1.SubscribeResponse
	if err := proto.Unmarshal(data, &m); err != nil {
		return err
	}
	e := event{
		EntityID: m.GetEntityId(), Sequence: m.GetSequence(), Type: m.GetEventType(), StoredType: m.GetStoredType(), CommandID: m.GetCommandId(),
		RecordedAt: m.GetRecordedAt().AsTime().Format(time.RFC3339Nano), Tags: m.GetTags(), ModuleDigest: m.GetModuleDigest(),
		Principal: m.GetPrincipal(), Skipped: m.GetSkipped(),
	}
	s.begin()
	if content := m.GetData(); s.json && json.Valid(content) {
		e.JSON = content
	} else {
		e.Data = content
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.send("id: " + m.GetCursor() + "\ndata: " + string(text) + "\n\n")
}

// end reports the end of the stream. An error becomes a normal error response if
// no event was sent yet, and an event called "failure" otherwise.
func (s *eventWriter) end(data []byte) error {
	s.ended = true
	var last struct {
		Error *wireError `json:"error"`
	}
	if err := json.Unmarshal(data, &last); err != nil {
		return err
	}
	switch {
	case last.Error == nil:
		s.begin()
		return nil
	case !s.began:
		p, status, after := last.Error.problem(statusOf(last.Error.Code))
		later(s.conn, after)
		fail(s.conn, status, p)
		return nil
	}
	p, _, _ := last.Error.problem(0)
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return s.send("event: failure\ndata: " + string(text) + "\n\n")
}

// begin sends the headers of an event stream, once.
func (s *eventWriter) begin() {
	if s.began {
		return
	}
	s.began, s.json = true, s.isJSON()
	header := s.conn.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // otherwise a buffering proxy would hold events back
	header.Set("X-Content-Type-Options", "nosniff")
	s.conn.WriteHeader(http.StatusOK)
}

func (s *eventWriter) send(text string) error {
	s.wrote = true
	_, err := s.conn.Write([]byte(text))
	return err
}

// keepAlive sends a comment if nothing was sent for a period, so that proxies do
// not close the idle connection. It returns when ended is closed.
func (s *eventWriter) keepAlive(period time.Duration, ended <-chan struct{}) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		if s.began && !s.ended && !s.wrote && s.trouble == nil {
			if s.trouble = s.send(":\n\n"); s.trouble == nil {
				s.flush()
			}
		}
		s.wrote = false
		s.mu.Unlock()
	}
}

// close writes the error of a call that was rejected before its stream began.
func (s *eventWriter) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status != http.StatusOK && s.status != 0 {
		writeError(s.conn, s.status, s.header, s.rest.Bytes())
	}
}

// statusOf returns the HTTP status of a Connect code.
// https://connectrpc.com/docs/protocol/#error-codes
func statusOf(code string) int {
	for _, known := range []struct {
		status int
		codes  string
	}{
		{499, "canceled"},
		{http.StatusBadRequest, "invalid_argument failed_precondition out_of_range"},
		{http.StatusGatewayTimeout, "deadline_exceeded"},
		{http.StatusNotFound, "not_found"},
		{http.StatusConflict, "already_exists aborted"},
		{http.StatusForbidden, "permission_denied"},
		{http.StatusTooManyRequests, "resource_exhausted"},
		{http.StatusNotImplemented, "unimplemented"},
		{http.StatusServiceUnavailable, "unavailable"},
		{http.StatusUnauthorized, "unauthenticated"},
	} {
		for _, c := range strings.Fields(known.codes) {
			if c == code {
				return known.status
			}
		}
	}
	return http.StatusInternalServerError
}

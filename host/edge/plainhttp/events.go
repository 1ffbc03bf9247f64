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
	JSON         json.RawMessage     `json:"json,omitempty"`       // the payload, if the type's encoding is JSON
	Data         []byte              `json:"data,omitempty"`       // the payload, if the type's encoding is not JSON
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
func (h *handler) eventShards(asked []uint32) int {
	if len(asked) > 0 {
		return len(asked)
	}
	return int(h.opts.Entities.Shards())
}

// eventsResponse is the form of a response with events.
type eventsResponse int

const (
	noEvents    eventsResponse = iota
	eventStream                // server-sent events
	cloudStream                // server-sent events whose data is a CloudEvent
	cloudBatch                 // a list of CloudEvents
)

// acceptedEvents returns the form of events that the request accepts. If the
// request accepts both a batch and a stream, it returns the first of them.
func acceptedEvents(h http.Header) eventsResponse {
	out := noEvents
	for kind := range strings.SplitSeq(strings.Join(h.Values("Accept"), ","), ",") {
		kind, _, _ = strings.Cut(kind, ";")
		switch kind = strings.ToLower(strings.TrimSpace(kind)); {
		case kind == "text/event-stream" && out == noEvents:
			out = eventStream
		case kind == cloudEventType && out != cloudBatch:
			out = cloudStream
		case kind == cloudBatchType && out == noEvents:
			out = cloudBatch
		}
	}
	return out
}

// events converts a request to a SubscribeEvents, and sends the events as server-sent
// events, the format of a browser's EventSource, or as a batch.
// https://html.spec.whatwg.org/multipage/server-sent-events.html
func (h *handler) events(w http.ResponseWriter, r *http.Request, entityType string, form eventsResponse) {
	req, limit, err := h.subscription(r, entityType, &form)
	if err != nil {
		refusal(w, err)
		return
	}
	of := payloads{h, r, entityType}
	var encoder eventForm = plainForm{}
	if form != eventStream {
		encoder = cloudForm{h.opts.Entities.Cluster(), entityType}
	}
	body := &lazy{make: func() (io.Reader, error) {
		message, err := proto.Marshal(req)
		out := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
		return bytes.NewReader(append(out, message...)), err
	}}
	if form == cloudBatch {
		h.batch(w, r, body, &batchWriter{answer: newAnswer(w), form: encoder, of: of, limit: limit, budget: h.opts.Budget, cursor: req.GetCursor()})
		return
	}
	s := &eventWriter{conn: w, header: http.Header{}, form: encoder, of: of, ending: func() { h.limitWrites(w) }}
	ended := make(chan struct{})
	var beat sync.WaitGroup
	beat.Go(func() { s.keepAlive(h.opts.KeepAlive, ended) })
	h.api.ServeHTTP(s, call(r, entityv1connect.EntityServiceSubscribeEventsProcedure, "application/connect+proto", body))
	close(ended)
	h.limitWrites(w)
	beat.Wait()
	s.close()
}

// subscription parses the parameters of a request for events. limit is the number
// of events of a batch.
func (h *handler) subscription(r *http.Request, entityType string, form *eventsResponse) (req *entityv1.SubscribeEventsRequest, limit int, err error) {
	names := []string{"tag", "cursor", "follow", "skip_truncated", "shards", "upcast"}
	if *form == cloudBatch {
		names = append(names, "limit")
	} else {
		names = append(names, "format")
	}
	given, err := parameters(r, names...)
	if err != nil {
		return nil, 0, err
	}
	switch format := given.Get("format"); format {
	case "":
	case "cloudevents": // an EventSource cannot set headers
		*form = cloudStream
	default:
		return nil, 0, fmt.Errorf("format must be cloudevents, got %.64q", format)
	}
	req = &entityv1.SubscribeEventsRequest{EntityType: entityType, Tag: given.Get("tag"), Cursor: r.Header.Get("Last-Event-ID"), AsData: true}
	if req.Cursor == "" {
		req.Cursor = given.Get("cursor")
	}
	for name, f := range map[string]*bool{"skip_truncated": &req.SkipTruncated, "upcast": &req.Upcast} {
		if *f, err = flagOf(name, given.Get(name), false); err != nil {
			return nil, 0, err
		}
	}
	if req.Follow, err = flagOf("follow", given.Get("follow"), *form != cloudBatch); err != nil {
		return nil, 0, err
	}
	if req.Shards, err = shardsOf(given.Get("shards")); err != nil {
		return nil, 0, err
	}
	if *form == cloudBatch {
		if req.Follow {
			return nil, 0, errors.New("a batch cannot follow: repeat the request with the cursor of the header Hostd-Cursor, or accept text/event-stream")
		}
		if limit, err = batchLimit(given.Get("limit")); err != nil {
			return nil, 0, err
		}
	}
	continues := req.Follow || *form == cloudBatch
	if n := h.eventShards(req.Shards); continues && n > maxEventShards {
		return nil, 0, fmt.Errorf("a cursor of %d shards exceeds the limit of the header Last-Event-ID, so a client could not continue after it: "+
			"read the events of at most %d shards at a time, with shards=1,2,... (the cluster has %d shards), read the events once as a stream with follow=false, or use the API's SubscribeEvents", n, maxEventShards, h.opts.Entities.Shards())
	}
	return req, limit, nil
}

// batch sends a list of events, which ends at the newest event or when it is
// full. If an error occurs after some events, the next request reports it.
//
// The batch counts as a stream, and for the budget, until it is written. The API
// has lifted the server's time limit for writes, so the batch sets its own.
func (h *handler) batch(w http.ResponseWriter, r *http.Request, body io.Reader, b *batchWriter) {
	if h.opts.Streams != nil {
		ctx, release := h.opts.Streams.KeepPlaces(r.Context())
		defer release()
		r = r.WithContext(ctx)
	}
	defer b.giveBack()
	h.api.ServeHTTP(b, call(r, entityv1connect.EntityServiceSubscribeEventsProcedure, "application/connect+proto", body))
	h.limitWrites(w)
	switch {
	case b.full != nil:
		later(w, 1)
		fail(w, http.StatusTooManyRequests, problem{Code: "resource_exhausted", Message: b.full.Error()})
		return
	case b.status != http.StatusOK && b.status != 0:
		writeError(w, b.status, b.header, b.body.Bytes())
		return
	case b.count > 0:
	case b.failed != nil:
		b.failed.write(w)
		return
	case !b.ended:
		later(w, 1)
		fail(w, http.StatusServiceUnavailable, problem{Code: "unavailable", Message: "the events could not be read to their end: repeat the request"})
		return
	default:
		b.events = []byte("[")
	}
	header := w.Header()
	header.Set("Content-Type", cloudBatchType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if b.cursor != "" {
		header.Set("Hostd-Cursor", b.cursor)
	}
	list := append(b.events, ']')
	header.Set("Content-Length", strconv.Itoa(len(list)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(list)                      // an error means that the client has gone
	_ = http.NewResponseController(w).Flush() // so that nothing is left to write when the place is released
}

// limitWrites limits the time to write the rest of a response.
func (h *handler) limitWrites(w http.ResponseWriter) {
	if h.opts.WriteStall > 0 {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.opts.WriteStall)) // only tests have a writer without deadlines
	}
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

// frames splits a Connect stream into its messages.
type frames struct {
	rest bytes.Buffer // an incomplete message
}

// each appends p to the stream and calls do for each complete message, until
// do fails. The server that writes the stream limits the size of messages.
func (f *frames) each(p []byte, do func(flags byte, data []byte) error) error {
	f.rest.Write(p)
	for f.rest.Len() >= prefixBytes {
		head := f.rest.Bytes()[:prefixBytes]
		flags, size := head[0], int(binary.BigEndian.Uint32(head[1:]))
		if f.rest.Len() < prefixBytes+size {
			break
		}
		f.rest.Next(prefixBytes)
		if err := do(flags, f.rest.Next(size)); err != nil {
			return err
		}
	}
	return nil
}

// eventOf decodes a message of a SubscribeEvents.
func eventOf(flags byte, data []byte) (*entityv1.SubscribeEventsResponse, error) {
	if flags&flagCompressed != 0 {
		return nil, errors.New("the message is compressed, which is not supported")
	}
	m := new(entityv1.SubscribeEventsResponse)
	return m, proto.Unmarshal(data, m)
}

// endOf decodes the last message of a stream, and returns its error if it has
// one.
func endOf(data []byte) (*wireError, error) {
	var last struct {
		Error *wireError `json:"error"`
	}
	err := json.Unmarshal(data, &last)
	return last.Error, err
}

// payloads knows the encoding of the payloads of the type that a request names.
type payloads struct {
	h          *handler
	r          *http.Request
	entityType string
}

func (p payloads) isJSON() bool { return p.h.contentType(p.r, p.entityType) == jsonType }

// eventForm encodes events as JSON.
type eventForm interface {
	encode(m *entityv1.SubscribeEventsResponse, isJSON bool) ([]byte, error)
}

// plainForm is the form of hostd's own events.
type plainForm struct{}

func (plainForm) encode(m *entityv1.SubscribeEventsResponse, isJSON bool) ([]byte, error) {
	e := event{
		EntityID: m.GetEntityId(), Sequence: m.GetSequence(), Type: m.GetEventType(), StoredType: m.GetStoredType(), CommandID: m.GetCommandId(),
		RecordedAt: m.GetRecordedAt().AsTime().Format(time.RFC3339Nano), Tags: m.GetTags(), ModuleDigest: m.GetModuleDigest(),
		Principal: m.GetPrincipal(), Skipped: m.GetSkipped(),
	}
	if content := m.GetData(); isJSON && json.Valid(content) {
		e.JSON = content
	} else {
		e.Data = content
	}
	return json.Marshal(e)
}

// eventWriter converts the messages of a Connect stream to server-sent events as
// they are written.
type eventWriter struct {
	conn   http.ResponseWriter
	header http.Header // header of the Connect stream
	form   eventForm
	of     payloads
	ending func() // is called before the last message is written

	mu      sync.Mutex
	status  int
	began   bool // the response headers were sent
	wrote   bool // something was written since the last tick of keepAlive
	ended   bool
	json    bool
	frames  frames
	body    bytes.Buffer // body of an error response
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

// Write accepts a part of the stream.
func (s *eventWriter) Write(p []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status != http.StatusOK {
		return s.body.Write(p)
	}
	if s.trouble == nil {
		if err := s.frames.each(p, s.message); err != nil {
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
	if flags&flagEnd != 0 {
		return s.end(data)
	}
	m, err := eventOf(flags, data)
	if err != nil {
		return err
	}
	s.begin()
	text, err := s.form.encode(m, s.json)
	if err != nil {
		return err
	}
	return s.send("id: " + m.GetCursor() + "\ndata: " + string(text) + "\n\n")
}

// end reports the end of the stream. An error becomes a normal error response if
// no event was sent yet, and an event called "failure" otherwise.
func (s *eventWriter) end(data []byte) error {
	s.ended = true
	s.ending()
	failed, err := endOf(data)
	switch {
	case err != nil:
		return err
	case failed == nil:
		s.begin()
		return nil
	case !s.began:
		failed.write(s.conn)
		return nil
	}
	p, _, _ := failed.problem(0)
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
	s.began, s.json = true, s.of.isJSON()
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
		writeError(s.conn, s.status, s.header, s.body.Bytes())
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

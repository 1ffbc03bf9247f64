package plainhttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// Media types of CloudEvents 1.0: one event as JSON, and a list of events.
const (
	cloudEventType = "application/cloudevents+json"
	cloudBatchType = "application/cloudevents-batch+json"
)

// cloudEvent is an event in the JSON format of CloudEvents 1.0.
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
type cloudEvent struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"` // unique within the source
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            string          `json:"time"`
	DataContentType string          `json:"datacontenttype,omitempty"`
	Data            json.RawMessage `json:"data,omitempty"`        // the payload, if the type's encoding is JSON
	DataBase64      []byte          `json:"data_base64,omitempty"` // the payload, if the type's encoding is not JSON

	// Documented extensions of CloudEvents: Sequence, Partitioning and
	// Authentication Context.
	Sequence     string `json:"sequence"` // text that sorts like the number
	PartitionKey string `json:"partitionkey"`
	AuthType     string `json:"authtype,omitempty"`
	AuthID       string `json:"authid,omitempty"`

	// Extensions of hostd. Values are text, because an integer of
	// CloudEvents has 32 bits, and CloudEvents have no lists.
	CommandID    string `json:"commandid,omitempty"`
	ModuleDigest string `json:"moduledigest,omitempty"`
	StoredType   string `json:"storedtype,omitempty"`
	Tags         string `json:"tags,omitempty"`
	Skipped      string `json:"skipped,omitempty"`
}

// cloudForm is the form of CloudEvents.
//
// The source names the cluster and the entity, and the id is the event's
// sequence. Sequences of an entity are never reused, not even after a deletion,
// so source and id together identify the event, as CloudEvents require.
type cloudForm struct{ cluster, entityType string }

func (f cloudForm) encode(m *entityv1.SubscribeEventsResponse, isJSON bool) ([]byte, error) {
	e := cloudEvent{
		SpecVersion:  "1.0",
		ID:           strconv.FormatUint(m.GetSequence(), 10),
		Source:       "hostd://" + f.cluster + "/" + url.PathEscape(f.entityType) + "/" + url.PathEscape(m.GetEntityId()),
		Type:         f.entityType + "." + attribute(m.GetEventType()),
		Subject:      attribute(m.GetEntityId()),
		Time:         m.GetRecordedAt().AsTime().Format(time.RFC3339Nano),
		Sequence:     fmt.Sprintf("%020d", m.GetSequence()),
		PartitionKey: attribute(m.GetEntityId()),
		CommandID:    attribute(m.GetCommandId()),
		ModuleDigest: m.GetModuleDigest(),
		StoredType:   attribute(m.GetStoredType()),
	}
	switch content := m.GetData(); {
	case len(content) == 0: // an event without data
	case isJSON && json.Valid(content):
		e.DataContentType, e.Data = jsonType, content
	default:
		e.DataContentType, e.DataBase64 = bytesType, content
	}
	var tags []string
	for _, t := range m.GetTags() {
		tags = append(tags, url.PathEscape(t)) // escapes commas too
	}
	e.Tags = strings.Join(tags, ",")
	if n := m.GetSkipped(); n > 0 {
		e.Skipped = strconv.FormatUint(n, 10)
	}
	if p := m.GetPrincipal(); p != nil {
		e.AuthType = authType(p.GetKind())
		if p.GetName() != "" {
			e.AuthID = attribute(p.GetKind() + ":" + p.GetName())
		}
	}
	return json.Marshal(e)
}

// authType maps a kind of caller to a value of the Authentication Context
// extension. The subject of a JWT may be a person or a program.
func authType(kind string) string {
	switch kind {
	case "token":
		return "api_key"
	case "certificate":
		return "service_account"
	case "anonymous":
		return "unauthenticated"
	}
	return "unknown"
}

// attribute percent-encodes the characters that an attribute of a CloudEvent
// must not contain: control characters and noncharacters.
func attribute(text string) string {
	if strings.IndexFunc(text, isForbidden) < 0 {
		return text
	}
	var out strings.Builder
	for _, c := range text {
		if !isForbidden(c) {
			out.WriteRune(c)
			continue
		}
		for _, b := range utf8.AppendRune(nil, c) {
			fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	return out.String()
}

func isForbidden(c rune) bool {
	return unicode.IsControl(c) || unicode.Is(unicode.Noncharacter_Code_Point, c)
}

// Limits of a batch. A batch ends with the event that reaches batchBytes.
const (
	defaultBatch = 100
	maxBatch     = 1000
	batchBytes   = 1 << 20
)

// batchLimit parses the parameter limit.
func batchLimit(text string) (int, error) {
	if text == "" {
		return defaultBatch, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxBatch {
		return 0, fmt.Errorf("limit must be a number from 1 to %d, got %.64q", maxBatch, text)
	}
	return n, nil
}

// batchCharge is how many bytes a batch is charged, for the events and for the
// last of them.
const batchCharge = 2 * batchBytes

// errBatchFull ends the call of a batch that has all its events.
var errBatchFull = errors.New("the batch is full")

// batchWriter collects the messages of a Connect stream in a JSON array.
type batchWriter struct {
	*answer
	form  eventForm
	of    payloads
	limit int
	// budget is charged from the first event on, because the API has admitted
	// the call then; nil charges nothing.
	budget  byteBudget
	charged bool
	full    error // the budget's reason to admit no batch

	frames frames
	json   bool
	events []byte // the array without its end; empty if there are no events
	count  int
	cursor string // cursor of the last event
	ended  bool
	failed *wireError // the error with which the stream ended
	err    error      // ends the call
}

// Write accepts a part of the stream.
func (b *batchWriter) Write(p []byte) (int, error) {
	if b.WriteHeader(200); b.status != 200 {
		return b.answer.Write(p)
	}
	if b.err == nil {
		b.err = b.frames.each(p, b.message)
	}
	return len(p), b.err
}

func (b *batchWriter) message(flags byte, data []byte) error {
	if flags&flagEnd != 0 {
		var err error
		b.failed, err = endOf(data)
		b.ended = err == nil
		return err
	}
	m, err := eventOf(flags, data)
	if err != nil {
		return err
	}
	if b.count == 0 {
		if b.full = b.charge(); b.full != nil {
			return b.full
		}
		b.json = b.of.isJSON()
	}
	text, err := b.form.encode(m, b.json)
	if err != nil {
		return err
	}
	b.events = append(append(b.events, "[,"[min(b.count, 1)]), text...)
	b.cursor = m.GetCursor()
	if b.count++; b.count == b.limit || len(b.events) >= batchBytes {
		return errBatchFull
	}
	return nil
}

// charge charges the batch to the budget.
func (b *batchWriter) charge() error {
	if b.budget == nil {
		return nil
	}
	err := b.budget.Take(b.of.r.Context(), batchCharge)
	b.charged = err == nil
	return err
}

// giveBack ends the charge.
func (b *batchWriter) giveBack() {
	if b.charged {
		b.budget.Give(b.of.r.Context(), batchCharge)
	}
}

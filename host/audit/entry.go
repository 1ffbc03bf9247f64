package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Stages of a call. A change gets a line of each stage, and any other call
// gets only a line of the last stage.
const (
	stageReceived = "received" // the call was authorized and the change is about to be made
	stageComplete = "complete" // the call has ended with Code
)

// Via returns the value of Entry.Via for a call that was forwarded by
// the given node, or "" if node is empty.
func Via(node string) string {
	if node == "" {
		return ""
	}
	return KindNode + ":" + node
}

// KindNode is the principal kind of a node that acts on its own.
const KindNode = "node"

// Principal identifies a caller.
type Principal struct {
	Kind string `json:"kind"`           // anonymous, token, jwt or node
	Name string `json:"name,omitempty"` // unique within its kind
}

// Entry is the content of one line, without the members that the log adds. Its
// strings are truncated to maxText bytes of the line, Target to maxTarget.
type Entry struct {
	Stage     string    `json:"stage"`
	Call      string    `json:"call,omitempty"` // identical in both lines of a call
	Principal Principal `json:"principal"`
	Via       string    `json:"via,omitempty"`     // node:NAME of the node that forwarded the call and named the principal
	Address   string    `json:"address"`           // address of the caller, host:port
	Method    string    `json:"method"`            // /package.Service/Method
	Verb      string    `json:"verb,omitempty"`    // a verb of hostd.auth.v1
	Type      string    `json:"type,omitempty"`    // entity type
	ID        string    `json:"id,omitempty"`      // entity id
	CommandID string    `json:"command,omitempty"` // command id
	Target    string    `json:"target,omitempty"`  // other subjects of the call: NAME=VALUE separated by spaces, ambiguous values quoted
	Result    string    `json:"result,omitempty"`  // the result of a change, in the format of Target
	Code      string    `json:"code,omitempty"`    // outcome, for stageComplete: ok, or the code of the error
	Reason    string    `json:"reason,omitempty"`  // why a credential or a node was rejected
	Policy    uint64    `json:"policy,omitempty"`  // revision of the roles that decided; 0 if none did
	Left      uint64    `json:"leftOut,omitempty"` // rejected calls of this caller that got no line since its previous line
}

// line is an entry as written. Prev must be the last member of the JSON object.
type line struct {
	Time time.Time `json:"time"`
	Node string    `json:"node"`
	Entry
	// Lost is the number of earlier lines that could not be written.
	Lost uint64 `json:"lost,omitempty"`
	// Torn means that the previous line was written only in part.
	Torn       bool        `json:"torn,omitempty"`
	Checkpoint *checkpoint `json:"checkpoint,omitempty"` // set for stageCheckpoint
	Prev       string      `json:"prev"`
}

// Bounds on the length of a line, in bytes. Those of strings include escapes.
const (
	maxText   = 512
	maxTarget = 4 << 10  // bound of Target: large enough for every field of a change
	maxLine   = 64 << 10 // more than a line with every string at its bound; former releases did not count escapes
)

// cut truncates the strings, whose length callers choose.
func (e *Entry) cut() {
	for _, s := range []*string{&e.Principal.Name, &e.Via, &e.Address, &e.Method, &e.Type, &e.ID, &e.CommandID, &e.Result, &e.Reason} {
		*s = cutAt(*s, maxText)
	}
	e.Target = cutAt(e.Target, maxTarget)
}

// maxEscape is the size of the longest escape of a byte in a JSON string.
const maxEscape = len(`\u0000`)

// cutAt truncates text so that it has at most most bytes in a line. Escapes
// count, because otherwise a caller would choose a path of bytes that become six
// each.
func cutAt(text string, most int) string {
	if len(text) <= most/maxEscape {
		return text
	}
	size := 0
	for i, r := range text {
		switch {
		case r == utf8.RuneError, r < ' ', r == '\u2028', r == '\u2029':
			size += maxEscape
		case r == '"', r == '\\':
			size += 2
		default:
			size += utf8.RuneLen(r)
		}
		if size > most {
			return strings.Clone(text[:i])
		}
	}
	return text
}

// render returns the line as JSON with a newline. Characters that are special
// only in HTML are not escaped, because they would become six bytes each.
func (l *line) render() ([]byte, error) {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	err := out.Encode(l)
	return text.Bytes(), err
}

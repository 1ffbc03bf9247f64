package audit

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Stages of a call. A change has both lines, every other one the last alone.
const (
	StageReceived = "received" // it was let in, and is about to be made
	StageComplete = "complete" // it has ended, with Code
)

// Via is an Entry's for what a node has passed on; empty for none.
func Via(node string) string {
	if node == "" {
		return ""
	}
	return KindNode + ":" + node
}

// KindNode is the kind of a node that does something by itself.
const KindNode = "node"

// Principal is who asked.
type Principal struct {
	Kind string `json:"kind"`           // anonymous, token, jwt or node
	Name string `json:"name,omitempty"` // unique within its kind
}

// Entry is one line but for what the log adds. Its texts are cut at maxText
// bytes, Target at maxTarget.
type Entry struct {
	Stage     string    `json:"stage"`
	Call      string    `json:"call,omitempty"` // the same in both lines of a call
	Principal Principal `json:"principal"`
	Via       string    `json:"via,omitempty"`     // node:NAME, the node that has passed it on and says who asked
	Address   string    `json:"address"`           // of the caller, host:port
	Method    string    `json:"method"`            // /package.Service/Method
	Verb      string    `json:"verb,omitempty"`    // of hostd.auth.v1
	Type      string    `json:"type,omitempty"`    // entity type
	ID        string    `json:"id,omitempty"`      // entity id
	CommandID string    `json:"command,omitempty"` // command id
	Target    string    `json:"target,omitempty"`  // what else it is about, NAME=VALUE with spaces between them, quoted where VALUE has some
	Result    string    `json:"result,omitempty"`  // what a change came to, in the same form
	Code      string    `json:"code,omitempty"`    // of StageComplete: ok, or the code of the error
	Reason    string    `json:"reason,omitempty"`  // of a credential or a node that was refused
	Policy    uint64    `json:"policy,omitempty"`  // revision of the roles that decided; 0 where none did
	Left      uint64    `json:"leftOut,omitempty"` // refusals of this caller before this one, without lines
}

// line is an entry as it is written. Prev is the last member of every line.
type line struct {
	Time time.Time `json:"time"`
	Node string    `json:"node"`
	Entry
	// Lost are lines that could not be written before this one.
	Lost uint64 `json:"lost,omitempty"`
	// Torn: the line before was not written to its end.
	Torn       bool        `json:"torn,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"` // of StageCheckpoint
	Prev       string      `json:"prev"`
}

// Bounds of a line.
const (
	maxText   = 512
	maxTarget = 4 << 10  // of Target: every field of a change has a place in it
	maxLine   = 64 << 10 // bytes, with every text at its bound and escaped
)

// cut bounds the texts, which callers choose.
func (e *Entry) cut() {
	for _, s := range []*string{&e.Principal.Name, &e.Via, &e.Address, &e.Method, &e.Type, &e.ID, &e.CommandID, &e.Result, &e.Reason} {
		*s = cutAt(*s, maxText)
	}
	e.Target = cutAt(e.Target, maxTarget)
}

func cutAt(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return strings.Clone(text[:most])
}

// render makes the line's bytes, with the newline.
func (l *line) render() ([]byte, error) {
	text, err := json.Marshal(l)
	return append(text, '\n'), err
}

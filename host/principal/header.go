package principal

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Header is where a node says, to another one, for whom it asks: JSON as Said
// makes it. A listener for clients takes it out.
const Header = "Hostd-Principal"

// Said is what a node says of a call that it passes on.
type Said struct {
	// Caller is who made the call; nil where nobody was asked.
	Caller *Principal
	// Roles is the revision of the roles by which the node has decided; 0 where
	// it has not.
	Roles uint64
}

// said is the JSON of Said, in this order of members.
type said struct {
	Kind   Kind     `json:"kind"`
	Name   string   `json:"name,omitempty"`
	Groups []string `json:"groups,omitempty"`
	Roles  uint64   `json:"roles,omitempty"`
}

// HeaderOf is the value of Header; empty where nobody was asked.
func HeaderOf(s Said) string {
	if s.Caller == nil {
		return ""
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(said{s.Caller.Kind, s.Caller.Name, s.Caller.Groups, s.Roles}); err != nil {
		return "" // strings and a number are always encoded
	}
	return string(bytes.TrimSuffix(out.Bytes(), []byte{'\n'}))
}

// ParseHeader is the inverse of HeaderOf. It fails with ErrInvalid for what is
// not exactly what HeaderOf makes, and with ErrTooLarge.
func ParseHeader(value string) (Said, error) {
	if value == "" {
		return Said{}, nil
	}
	var in said
	d := json.NewDecoder(bytes.NewReader([]byte(value)))
	if err := d.Decode(&in); err != nil {
		return Said{}, fmt.Errorf("%w: its JSON does not decode", ErrInvalid)
	}
	p, err := New(in.Kind, in.Name, in.Groups)
	if err != nil {
		return Said{}, err
	}
	s := Said{Caller: p, Roles: in.Roles}
	if HeaderOf(s) != value {
		return Said{}, fmt.Errorf("%w: its JSON is not canonical", ErrInvalid)
	}
	return s, nil
}

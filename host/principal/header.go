package principal

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Header is the HTTP header in which a node that forwards a call names the
// original caller, as JSON that HeaderOf makes. A listener for clients removes
// it from requests.
const Header = "Hostd-Principal"

// Said is what a node states about a call that it forwards.
type Said struct {
	// Caller is the authenticated caller; nil if the forwarding node does not
	// authenticate.
	Caller *Principal
	// Roles is the revision of the roles by which the forwarding node allowed
	// the call; 0 if roles did not decide.
	Roles uint64
}

// said is the JSON form of Said, with the members in this order.
type said struct {
	Kind   Kind     `json:"kind"`
	Name   string   `json:"name,omitempty"`
	Groups []string `json:"groups,omitempty"`
	Roles  uint64   `json:"roles,omitempty"`
}

// HeaderOf returns the value of Header; empty if the call has no authenticated
// caller.
func HeaderOf(s Said) string {
	if s.Caller == nil {
		return ""
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(said{s.Caller.Kind, s.Caller.Name, s.Caller.Groups, s.Roles}); err != nil {
		return "" // cannot happen: strings and a number always encode
	}
	return string(bytes.TrimSuffix(out.Bytes(), []byte{'\n'}))
}

// ParseHeader is the inverse of HeaderOf. It fails with ErrInvalid for a value
// that HeaderOf does not produce, and with errTooLarge.
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

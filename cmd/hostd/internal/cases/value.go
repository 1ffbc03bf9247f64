package cases

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/hostd/hostd/abi/jsontext"
	"github.com/hostd/hostd/abi/manifest"
)

// Limits of a value, including its aliases.
const (
	maxValueBytes = 1 << 20
	maxValueDepth = 500
)

// payload returns a value as the guest receives it: canonical JSON text, or
// bytes for a type with the encoding bytes; nil if there is none.
func (p parser) payload(n *yaml.Node, encoding manifest.Encoding) ([]byte, error) {
	if n == nil {
		return nil, nil
	}
	var out []byte
	var err error
	if encoding == manifest.Bytes {
		out, err = plainBytes(resolve(n))
	} else {
		var b bytes.Buffer
		if err = appendJSON(&b, n, 0); err == nil {
			out, err = jsontext.Canonical(b.Bytes()) // nodes pass the canonical text to guests too
		}
	}
	return out, p.at(n, err)
}

// plainBytes returns the bytes of a text or of a YAML binary.
func plainBytes(n *yaml.Node) ([]byte, error) {
	if n.Kind != yaml.ScalarNode {
		return nil, errors.New("payloads of this type are bytes: use a string, or !!binary and base64")
	}
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!binary":
		return base64.StdEncoding.DecodeString(n.Value)
	}
	return []byte(n.Value), nil
}

// appendJSON appends a node as JSON text.
func appendJSON(out *bytes.Buffer, n *yaml.Node, depth int) error {
	n = resolve(n)
	if depth > maxValueDepth || out.Len() > maxValueBytes {
		return fmt.Errorf("a value must have at most %d bytes of JSON and nest at most %d levels deep", maxValueBytes, maxValueDepth)
	}
	switch n.Kind {
	case yaml.MappingNode:
		seen := map[string]bool{}
		out.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := resolve(n.Content[i])
			if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
				return errors.New("the name of a member must be a string")
			}
			if seen[key.Value] {
				return fmt.Errorf("the member %q is duplicated", key.Value)
			}
			seen[key.Value] = true
			if i > 0 {
				out.WriteByte(',')
			}
			appendText(out, key.Value)
			out.WriteByte(':')
			if err := appendJSON(out, n.Content[i+1], depth+1); err != nil {
				return err
			}
		}
		out.WriteByte('}')
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := appendJSON(out, item, depth+1); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	case yaml.ScalarNode:
		return appendScalar(out, n)
	default:
		return errors.New("the value is not supported")
	}
	return nil
}

func appendScalar(out *bytes.Buffer, n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		out.WriteString("null")
	case "!!bool":
		var is bool
		if err := n.Decode(&is); err != nil {
			return err
		}
		out.WriteString(strconv.FormatBool(is))
	case "!!int":
		return appendInteger(out, n)
	case "!!float":
		if json.Valid([]byte(n.Value)) {
			out.WriteString(n.Value)
			return nil
		}
		var f float64
		if err := n.Decode(&f); err != nil {
			return err
		}
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%s is not a JSON number", n.Value)
		}
		out.WriteString(strconv.FormatFloat(f, 'g', -1, 64))
	default: // texts, times and unknown scalars keep their notation
		appendText(out, n.Value)
	}
	return nil
}

// appendInteger appends an integer with all its digits, however many there are.
func appendInteger(out *bytes.Buffer, n *yaml.Node) error {
	if json.Valid([]byte(n.Value)) {
		out.WriteString(n.Value)
		return nil
	}
	var i int64
	if err := n.Decode(&i); err == nil {
		out.WriteString(strconv.FormatInt(i, 10))
		return nil
	}
	var u uint64
	if err := n.Decode(&u); err != nil {
		return err
	}
	out.WriteString(strconv.FormatUint(u, 10))
	return nil
}

func appendText(out *bytes.Buffer, text string) {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if enc.Encode(text) == nil { // encoding a text never fails
		out.Truncate(out.Len() - 1) // the line break
	}
}

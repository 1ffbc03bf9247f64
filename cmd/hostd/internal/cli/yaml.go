package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// writeYAML writes JSON text as a YAML document with the same members in the
// same order. Numbers keep their digits. A text with invisible characters is
// quoted, and the characters are escaped.
func writeYAML(w io.Writer, text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	node, err := yamlNode(d)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(node); err != nil {
		return err
	}
	if err := enc.Close(); err != nil {
		return err
	}
	_, err = io.WriteString(w, escapeYAML(out.String()))
	return err
}

// yamlNode reads the next JSON value.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if t == '{' {
			node.Kind = yaml.MappingNode
		}
		for d.More() {
			below, err := yamlNode(d)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, below)
		}
		if len(node.Content) == 0 {
			node.Style = yaml.FlowStyle // [] and {}
		}
		_, err := d.Token() // the end
		return node, err
	case string:
		node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: t}
		if strings.IndexFunc(t, unseen) >= 0 {
			node.Style = yaml.DoubleQuotedStyle
		}
		return node, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// escapeYAML escapes the invisible characters that the encoder has left in
// quoted texts.
func escapeYAML(text string) string {
	if strings.IndexFunc(text, unseenInJSON) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		switch {
		case !unseenInJSON(r):
			out.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&out, `\U%08x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

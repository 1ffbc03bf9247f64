package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Marks of the table of values in its page.
const (
	tableBegin = "<!-- values: begin (by make kubernetes) -->\n"
	tableEnd   = "<!-- values: end -->\n"
)

// describe returns the page with a table of the values in file. Each value has
// a comment above it.
func describe(file, page string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return "", err
	}
	table := &strings.Builder{}
	table.WriteString("| value | default | meaning |\n|---|---|---|\n")
	if err := describeValues(table, "", document.Content[0]); err != nil {
		return "", err
	}
	before, rest, begins := strings.Cut(page, tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return "", errors.New("the page has no place for the table of values")
	}
	return before + tableBegin + table.String() + tableEnd + after, nil
}

func describeValues(to *strings.Builder, prefix string, values *yaml.Node) error {
	for i := 0; i < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		comment := strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", " ")), " ")
		name := prefix + key.Value
		switch {
		case comment == "" && value.Kind == yaml.MappingNode:
			if err := describeValues(to, name+".", value); err != nil {
				return err
			}
			continue
		case comment == "":
			return fmt.Errorf("%s has no comment", name)
		}
		comment = strings.TrimSuffix(comment, ".")
		if second := comment[1:2]; second == strings.ToLower(second) && !strings.Contains(comment, ". ") {
			comment = strings.ToLower(comment[:1]) + comment[1:]
		}
		shown, err := inline(value)
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "| `%s` | %s | %s |\n", name, shown, strings.ReplaceAll(comment, "|", "\\|"))
	}
	return nil
}

// inline returns a value in one line.
func inline(value *yaml.Node) (string, error) {
	if value.Kind == yaml.ScalarNode && value.Value == "" {
		return "-", nil
	}
	if len(value.Content) == 0 && value.Kind != yaml.ScalarNode {
		return "-", nil
	}
	copied := *value
	copied.Style = yaml.FlowStyle
	for i, below := range copied.Content {
		plain := *below
		plain.HeadComment, plain.LineComment, plain.FootComment = "", "", ""
		copied.Content[i] = &plain
	}
	copied.HeadComment, copied.FootComment = "", ""
	text, err := yaml.Marshal(&copied)
	return "`" + strings.Join(strings.Fields(string(text)), " ") + "`", err
}

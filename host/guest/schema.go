package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/hostd/hostd/abi/manifest"
)

const dialect = "https://json-schema.org/draft/2020-12/schema"

// CheckSchemas returns a *manifest.Error for the first schema in a manifest
// that is invalid or that nodes cannot enforce within their bounds. It checks
// the bounds first, so that the validation that follows is bounded too.
func CheckSchemas(m *manifest.Manifest) error {
	if !m.HasSchemas() {
		return nil
	}
	if err := m.CheckSchemas(); err != nil {
		return err
	}
	meta, err := compiler().Compile(dialect)
	if err != nil {
		return fmt.Errorf("the schema of schemas: %w", err)
	}
	return m.Schemas(func(path string, text json.RawMessage) error {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return &manifest.Error{Path: path, Reason: "is not JSON text"}
		}
		fault, is := errors.AsType[*jsonschema.ValidationError](meta.Validate(v))
		if !is {
			return nil
		}
		for len(fault.Causes) > 0 {
			fault = fault.Causes[0]
		}
		return &manifest.Error{Path: join(path, fault.InstanceLocation), Reason: fault.ErrorKind.LocalizedString(message.NewPrinter(language.English))}
	})
}

// compiler returns a schema compiler that resolves only the schemas built into
// the library.
func compiler() *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nowhere{})
	return c
}

type nowhere struct{}

func (nowhere) Load(string) (any, error) {
	return nil, errors.New("a schema must not refer to other documents")
}

func join(path string, at []string) string {
	for _, token := range at {
		if _, err := strconv.Atoi(token); err == nil {
			path += "[" + token + "]"
		} else {
			path += "." + strings.ToValidUTF8(token, "?")
		}
	}
	return path
}

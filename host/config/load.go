package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Sources are the sources of values, in ascending order of precedence.
type Sources struct {
	// File is the path of a YAML file that maps keys to values; "" means no file.
	File string
	// LookupEnv returns environment variables, such as os.LookupEnv; nil means none.
	LookupEnv func(name string) (string, bool)
	// Flags holds the values of the flags that were set, by key.
	Flags map[string]string
}

// Load returns the validated configuration: the defaults, overridden by the file,
// then the environment, then the flags. It returns all faults joined, each with
// its source.
func Load(src Sources) (Config, error) {
	c := Default()
	fields := map[string]Field{}
	for _, f := range c.Fields() {
		fields[f.Name] = f
	}
	var faults []error
	if src.File != "" {
		faults = append(faults, loadFile(src.File, fields))
	}
	if src.LookupEnv != nil {
		for name, f := range fields {
			if name == tokenFileKey {
				continue // see tokenFileKey
			}
			env := EnvName(name)
			if value, ok := src.LookupEnv(env); ok {
				if err := f.Set(value); err != nil {
					faults = append(faults, fmt.Errorf("environment variable %s: %w", env, err))
				}
			}
		}
	}
	for name, value := range src.Flags {
		f, ok := fields[name]
		if !ok {
			faults = append(faults, fmt.Errorf("flag --%s: unknown key", name))
			continue
		}
		if err := f.Set(value); err != nil {
			faults = append(faults, fmt.Errorf("flag --%s: %w", name, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	return c, nil
}

// EnvName returns the name of the environment variable for a key.
func EnvName(key string) string {
	return "HOSTD_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

func loadFile(path string, fields map[string]Field) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return readYAML(f, path, fields)
}

// readYAML sets every key of the mapping. It walks the document's nodes instead of
// decoding into a struct, so that errors have line numbers and unknown or duplicate
// keys are found.
func readYAML(r io.Reader, name string, fields map[string]Field) error {
	var doc yaml.Node
	dec := yaml.NewDecoder(io.LimitReader(r, 1<<20))
	if err := dec.Decode(&doc); err == io.EOF {
		return nil
	} else if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := dec.Decode(new(yaml.Node)); err != io.EOF {
		return fmt.Errorf("%s: must be a single YAML document", name)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: must be a mapping of keys to values", name, root.Line)
	}
	var faults []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		f, known := fields[key.Value]
		var err error
		switch {
		case !known:
			err = fmt.Errorf("unknown key")
		case seen[key.Value]:
			err = fmt.Errorf("duplicate key")
		default:
			err = setNode(f, value)
		}
		seen[key.Value] = true
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %s: %w", name, key.Line, key.Value, err))
		}
	}
	return errors.Join(faults...)
}

// setNode sets a key from its YAML value, which may be a sequence for a list.
func setNode(f Field, value *yaml.Node) error {
	if f.kind != kindList || value.Kind != yaml.SequenceNode {
		if value.Kind != yaml.ScalarNode {
			return fmt.Errorf("must be a single value")
		}
		return f.Set(value.Value)
	}
	items := make([]string, len(value.Content))
	for i, item := range value.Content {
		if item.Kind != yaml.ScalarNode || strings.Contains(item.Value, ",") {
			return fmt.Errorf("item %d must be a single value without a comma", i+1)
		}
		items[i] = item.Value
	}
	return f.Set(strings.Join(items, ","))
}

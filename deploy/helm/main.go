// Helm renders the chart in hostd with its default values to plain YAML, for people who don't use Helm, and writes the table
// of values in its page. It is a module of its own, so that users of the SDK and the client don't get its dependencies. It
// uses Helm 3 as a library, because Helm 4 would also compile the clients of all Kubernetes APIs. Its tests check the chart,
// the compose file and the pages that describe them.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

const (
	// release and namespace are used in the plain YAML.
	release   = "hostd"
	namespace = "default"
	// kubernetesVersion is the Kubernetes version for which the chart is rendered.
	kubernetesVersion = "v1.35.0"
	notes             = "NOTES.txt"
	header            = "# Written by \"make kubernetes\" from deploy/helm/hostd with its default values.\n"
)

func main() {
	root := flag.String("root", "../..", "`directory` of the repository")
	flag.Parse()
	if err := write(*root); err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
}

// write writes the plain YAML and the table of values.
func write(root string) error {
	dir := filepath.Join(root, "deploy/helm/hostd")
	files, err := render(dir, nil)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "deploy/kubernetes/hostd.yaml"), []byte(plain(files)), 0o644); err != nil {
		return err
	}
	page := filepath.Join(root, "docs/operating/kubernetes.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	described, err := describe(filepath.Join(dir, "values.yaml"), string(text))
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(described), 0o644)
}

// render renders the chart in dir with values, and returns the text of each
// template by its file name. It fails if the values violate the schema.
func render(dir string, values map[string]any) (map[string]string, error) {
	loaded, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	version, err := chartutil.ParseKubeVersion(kubernetesVersion)
	if err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(loaded, all)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, text := range rendered {
		out[path.Base(name)] = text
	}
	return out, nil
}

// plain returns the rendered objects as one file.
func plain(files map[string]string) string {
	var out strings.Builder
	out.WriteString(header)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, document := range documents(files[name]) {
			if name != notes {
				out.WriteString("---\n" + document + "\n")
			}
		}
	}
	return out.String()
}

// documents returns the YAML documents in a text, except those that contain
// only comments.
func documents(text string) []string {
	var out []string
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		document = strings.TrimSpace(document)
		for line := range strings.Lines(document) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				out = append(out, document)
				break
			}
		}
	}
	return out
}

package quickjs

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
	typescript "github.com/hostd/hostd/guest-sdk/typescript"
)

const (
	sdkPackage   = "@hostd/guest"
	sdkEntry     = "src/index.ts"
	sdkNamespace = "hostd-sdk"
)

// bundle combines a project's script and its imports to one script, and returns
// the table that maps its lines to the sources.
func bundle(dir, entry string, log io.Writer) (script, lines []byte, err error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, err
	}
	entry, err = filepath.Abs(entry)
	if err != nil {
		return nil, nil, err
	}
	result := api.Build(api.BuildOptions{
		EntryPoints:       []string{entry},
		AbsWorkingDir:     root,
		Outfile:           filepath.Join(root, scriptName), // not written to disk
		Bundle:            true,
		Format:            api.FormatIIFE,
		Platform:          api.PlatformNeutral,
		MainFields:        []string{"module", "main"},
		Target:            api.ES2023,
		Charset:           api.CharsetUTF8,
		LegalComments:     api.LegalCommentsNone,
		Sourcemap:         api.SourceMapExternal,
		SourcesContent:    api.SourcesContentExclude,
		Supported:         map[string]bool{"top-level-await": false},
		Plugins:           []api.Plugin{sdkPlugin()},
		LogLevel:          api.LogLevelSilent,
		IgnoreAnnotations: false,
	})
	for kind, list := range [][]api.Message{result.Errors, result.Warnings} {
		for _, text := range api.FormatMessages(list, api.FormatMessagesOptions{Kind: api.MessageKind(kind)}) {
			fmt.Fprint(log, text)
		}
	}
	if n := len(result.Errors); n > 0 {
		return nil, nil, fmt.Errorf("the script has %d errors, the first: %s", n, place(result.Errors[0]))
	}
	var sourceMap []byte
	for _, f := range result.OutputFiles {
		if strings.HasSuffix(f.Path, ".map") {
			sourceMap = f.Contents
		} else {
			script = f.Contents
		}
	}
	lines, err = lineTable(sourceMap)
	return script, lines, err
}

// place formats a fault as one line.
func place(m api.Message) string {
	if m.Location == nil {
		return m.Text
	}
	return fmt.Sprintf("%s:%d: %s", m.Location.File, m.Location.Line, m.Text)
}

// sdkPlugin resolves the SDK for a project that does not have its own.
func sdkPlugin() api.Plugin {
	type asked struct{}
	return api.Plugin{Name: sdkNamespace, Setup: func(b api.PluginBuild) {
		b.OnResolve(api.OnResolveOptions{Filter: "^" + sdkPackage + "$"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
			if _, again := a.PluginData.(asked); again {
				return api.OnResolveResult{}, nil
			}
			found := b.Resolve(a.Path, api.ResolveOptions{
				ResolveDir: a.ResolveDir, Importer: a.Importer, Kind: a.Kind, PluginData: asked{},
			})
			if len(found.Errors) == 0 {
				return api.OnResolveResult{Path: found.Path, Namespace: found.Namespace}, nil
			}
			return api.OnResolveResult{Path: sdkEntry, Namespace: sdkNamespace}, nil
		})
		b.OnResolve(api.OnResolveOptions{Filter: ".*", Namespace: sdkNamespace}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
			file := path.Join(path.Dir(a.Importer), a.Path)
			return api.OnResolveResult{Path: strings.TrimSuffix(file, ".js") + ".ts", Namespace: sdkNamespace}, nil
		})
		b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: sdkNamespace}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
			text, err := fs.ReadFile(typescript.Sources, a.Path)
			contents := string(text)
			return api.OnLoadResult{Contents: &contents, Loader: api.LoaderTS}, err
		})
	}}
}

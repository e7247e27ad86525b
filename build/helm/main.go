// SPDX-License-Identifier: Apache-2.0

// Helm renders Coelan's chart into the files that `kubectl apply` takes, with Helm's own engine.
//
//	helm CHART DIR
//
// It is a module of its own so that Helm stays out of the product's dependencies.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1/util"
)

const header = `# SPDX-License-Identifier: Apache-2.0
# Generated from deploy/helm/coelan by ` + "`make generate`" + `: change it there.
`

// manifests are the files, each with the values that make it.
var manifests = []struct {
	file, about string
	values      map[string]any
	kinds       []string // of the objects in it; nil: all
	template    string   // that they are of; empty: all
}{
	{
		file:   "coelan.yaml",
		values: map[string]any{"createNamespace": true},
	},
	{
		file: "uninstall.yaml",
		about: `# Puts in the agents' place what removes all that they have put on the nodes, and in the controller's what
# removes all that Coelan has made by itself in the API. What users have written there stays.
# docs/operate/install.md says how to use it.
`,
		values: map[string]any{"uninstall": true},
		kinds:  []string{"DaemonSet", "Deployment"},
	},
	{
		file: "watcher.yaml",
		about: `# Keeps a RESTCONF controller outside of the cluster as the cluster is. Write its URL into the ConfigMap, and its
# password into a Secret: docs/use/watcher.md.
`,
		values:   map[string]any{"watcher": map[string]any{"enabled": true, "host": "https://odl.example.com:8443"}},
		template: "watcher.yaml",
	},
	{
		file: "neutron.yaml",
		about: `# What a controller with the backend neutron may do beyond what coelan.yaml lets it: docs/operate/backends.md.
`,
		values: map[string]any{
			"config":  map[string]any{"encapsulation": "geneve", "backend": map[string]any{"type": "neutron"}},
			"neutron": map[string]any{"endpoint": "http://192.0.2.1:9696/", "project": "coelan"},
		},
		template: "neutron.yaml",
	},
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: helm CHART DIR, or with values in JSON on standard input: helm CHART -")
		os.Exit(2)
	}
	do := generate
	if os.Args[2] == "-" {
		do = printOut
	}
	if err := do(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
}

// printOut writes what the chart makes of values on standard input to standard output.
func printOut(chartDir, _ string) error {
	var values map[string]any
	if err := json.NewDecoder(os.Stdin).Decode(&values); err != nil {
		return fmt.Errorf("values: %w", err)
	}
	text, err := render(chartDir, values, "")
	if err == nil {
		_, err = os.Stdout.WriteString(text)
	}
	return err
}

func generate(chartDir, dir string) error {
	for _, m := range manifests {
		text, err := render(chartDir, m.values, m.template, m.kinds...)
		if err != nil {
			return fmt.Errorf("%s: %w", m.file, err)
		}
		if err := os.WriteFile(filepath.Join(dir, m.file), []byte(header+m.about+text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render is the chart's objects in the order in which they are to be applied, as one YAML stream;
// with a template or kinds, only those of that file or of these kinds.
func render(chartDir string, values map[string]any, template string, kinds ...string) (string, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return "", err
	}
	options := common.ReleaseOptions{Name: "coelan", Namespace: "coelan-system", IsInstall: true}
	all, err := util.ToRenderValues(chart, values, options, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}
	for name := range files {
		if path.Base(name) == "NOTES.txt" {
			delete(files, name)
		}
	}
	_, objects, err := release.SortManifests(files, nil, release.InstallOrder)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, o := range objects {
		of := template == "" || path.Base(o.Name) == template
		if of && (len(kinds) == 0 || slices.Contains(kinds, o.Head.Kind)) {
			b.WriteString("---\n" + strings.TrimSpace(o.Content) + "\n")
		}
	}
	return b.String(), nil
}

// SPDX-License-Identifier: Apache-2.0

// Helm renders Coelan's chart into the one file that `kubectl apply` takes, with Helm's own engine.
//
//	helm CHART > coelan.yaml
//
// It is a module of its own so that Helm stays out of the product's dependencies.
package main

import (
	"fmt"
	"os"
	"path"
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

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: helm CHART")
		os.Exit(2)
	}
	text, err := manifest(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}

// manifest is the file that `kubectl apply` takes: the chart's defaults, with the namespace.
func manifest(chartDir string) (string, error) {
	text, err := render(chartDir, map[string]any{"createNamespace": true})
	return header + text, err
}

// render is the chart's objects in the order in which they are to be applied, as one YAML stream.
func render(dir string, values map[string]any) (string, error) {
	chart, err := loader.Load(dir)
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
		b.WriteString("---\n" + strings.TrimSpace(o.Content) + "\n")
	}
	return b.String(), nil
}

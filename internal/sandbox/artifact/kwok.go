// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// Kwok plays nodes and pods that are objects of the API and nothing else. It is made for sandboxes
// that ask for it.

const kwokModule = "sigs.k8s.io/kwok"

var kwok = module{name: "kwok", version: KwokVersion, packages: []string{kwokModule + "/cmd/kwok"}, output: "kwok"}

// kwokStages are upstream's, of what happens to nodes and pods: they become Ready at once, and a
// deleted pod is gone.
var kwokStages = []string{
	"node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
	"pod/fast/pod-ready.yaml", "pod/fast/pod-complete.yaml", "pod/fast/pod-delete.yaml",
}

const stagesFile = "stages.yaml"

// Kwok returns the paths of the program and of its configuration. They are made if
// the cache lacks them.
func (c Cache) Kwok(ctx context.Context) (program, stages string, err error) {
	unlock, err := c.lock()
	if err != nil {
		return "", "", err
	}
	defer unlock()
	if err := c.build(ctx, kwok); err != nil {
		return "", "", err
	}
	name := "kwok-stages-" + key(KwokVersion, kwokStages)
	err = c.make(name, "stages of kwok", func(dir string) error {
		var all []string
		for _, stage := range kwokStages {
			file, err := c.moduleFile(ctx, kwok.name, kwokModule, filepath.Join("kustomize/stage", stage))
			if err != nil {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			all = append(all, string(text))
		}
		return os.WriteFile(filepath.Join(dir, stagesFile), []byte(strings.Join(all, "\n---\n")), 0o644)
	})
	program = filepath.Join(c.Dir, versioned(kwok.name, kwok.version), kwok.output)
	return program, filepath.Join(c.Dir, name, stagesFile), err
}

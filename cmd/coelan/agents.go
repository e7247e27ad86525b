// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"coelan.io/coelan/internal/diagnose"
)

// clusterFlags say which cluster's agents a command asks, and how it prints.
type clusterFlags struct {
	loading   *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	agents    string // the agents' namespace
	node      string
	json      bool
}

func addClusterFlags(c *cobra.Command) *clusterFlags {
	f := &clusterFlags{loading: clientcmd.NewDefaultClientConfigLoadingRules()}
	fs := c.Flags()
	fs.StringVar(&f.loading.ExplicitPath, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG or ~/.kube/config)")
	fs.StringVar(&f.overrides.CurrentContext, "context", "", "context of the kubeconfig file")
	fs.StringVarP(&f.overrides.Context.Namespace, "namespace", "n", "", "namespace of pods that are named without one")
	fs.StringVar(&f.agents, "agent-namespace", "coelan-system", "namespace in which Coelan is installed")
	return f
}

// addNodeFlag adds what commands over all nodes have.
func (f *clusterFlags) addNodeFlag(c *cobra.Command) {
	c.Flags().StringVar(&f.node, "node", "", "only this node")
	c.Flags().BoolVar(&f.json, "json", false, "print the agents' own answers as JSON")
}

// connect makes the client of the agents; the second value is the namespace of
// pods named without one.
func (f *clusterFlags) connect() (*diagnose.Cluster, string, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.loading, &f.overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	cluster, err := diagnose.NewCluster(config, f.agents)
	return cluster, namespace, err
}

// eachNode asks the agents of the chosen nodes one after the other. A node that does not answer
// does not keep the others from being asked: its error is part of the returned one.
func (f *clusterFlags) eachNode(cmd *cobra.Command, ask func(agents diagnose.Agents, node string) error) error {
	cluster, _, err := f.connect()
	if err != nil {
		return err
	}
	nodes := []string{f.node}
	if f.node == "" {
		if nodes, err = cluster.Nodes(cmd.Context()); err != nil {
			return err
		}
	}
	var errs []error
	for _, n := range nodes {
		errs = append(errs, ask(cluster, n))
	}
	return errors.Join(errs...)
}

// newTable aligns columns; its caller flushes it.
func newTable(w io.Writer, head ...string) *tabwriter.Writer {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(head, "\t"))
	return t
}

// printJSON writes one JSON document per call.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// join writes values as people list them, or a dash for none.
func join[T any](values []T) string {
	if len(values) == 0 {
		return "-"
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ",")
}

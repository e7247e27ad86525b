// SPDX-License-Identifier: Apache-2.0

// Coelan-cni is the CNI plugin: it passes the runtime's call to the agent's socket and
// prints the answer. It knows nothing else, so that it starts fast and never needs to be
// replaced together with the agent: no Kubernetes client, no netlink, and an HTTP request
// written by hand, since package net/http alone would double the time it runs.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/version"
)

// How long the plugin waits for the agent's answer if the configuration's key timeout
// does not say. STATUS is asked for often, and its answer is known at once.
const (
	defaultTimeout = 60 * time.Second
	statusTimeout  = 10 * time.Second
)

// socketWait is how long the plugin waits for the socket of an agent that is being
// restarted.
const socketWait = 5 * time.Second

func main() {
	os.Exit(run(os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// run is the plugin; it returns the exit code.
func run(getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	command := getenv("CNI_COMMAND")
	switch command {
	case "":
		fmt.Fprintf(stderr, "coelan-cni %s: a CNI plugin, to be run by a container runtime. CNI versions: %s\n",
			version.String(), strings.Join(wire.Versions, ", "))
		return 0
	case "VERSION":
		return print(stdout, map[string]any{"cniVersion": wire.LatestVersion, "supportedVersions": wire.Versions})
	}
	conf, answer, err := call(command, getenv, stdin)
	if err == nil {
		if _, err := stdout.Write(answer); err != nil {
			fmt.Fprintf(stderr, "coelan-cni: print the result: %v\n", err)
			return 1
		}
		return 0
	}
	var cniErr *wire.Error
	if !errors.As(err, &cniErr) {
		cniErr = &wire.Error{Code: wire.CodeIO, Msg: "coelan-cni", Details: err.Error()}
	}
	if slices.Contains(wire.Versions, conf.CNIVersion) {
		cniErr.CNIVersion = conf.CNIVersion
	} else if cniErr.CNIVersion == "" {
		cniErr.CNIVersion = wire.LatestVersion
	}
	print(stdout, cniErr)
	return 1
}

// settings are the keys of the network configuration that the plugin itself needs.
type settings struct {
	CNIVersion string  `json:"cniVersion"`
	Socket     string  `json:"socket"`
	Timeout    float64 `json:"timeout"` // seconds
}

// call asks the agent. The error is a *wire.Error if it is more than a failure to read.
func call(command string, getenv func(string) string, stdin io.Reader) (settings, []byte, error) {
	conf := settings{Socket: wire.DefaultSocket}
	data, err := io.ReadAll(io.LimitReader(stdin, wire.MaxRequest))
	if err != nil {
		return conf, nil, fmt.Errorf("read the network configuration from standard input: %w", err)
	}
	if err := json.Unmarshal(data, &conf); err != nil {
		return conf, nil, &wire.Error{Code: wire.CodeDecoding, Msg: "network configuration on standard input",
			Details: err.Error()}
	}
	timeout := defaultTimeout
	if command == "STATUS" {
		timeout = statusTimeout
	}
	if conf.Timeout > 0 {
		timeout = time.Duration(conf.Timeout * float64(time.Second))
	}
	body, err := json.Marshal(wire.Request{
		Command: command, ContainerID: getenv("CNI_CONTAINERID"), Netns: getenv("CNI_NETNS"),
		IfName: getenv("CNI_IFNAME"), Args: getenv("CNI_ARGS"), Config: data,
		TimeoutMillis: timeout.Milliseconds(),
	})
	if err != nil {
		return conf, nil, err
	}
	answer, err := exchange(conf.Socket, body, timeout, command == "STATUS")
	return conf, answer, err
}

func print(w io.Writer, v any) int {
	text, err := json.MarshalIndent(v, "", "    ")
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	if err != nil {
		return 1
	}
	return 0
}

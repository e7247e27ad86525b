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
	"path/filepath"
	"slices"
	"strings"
	"time"

	"coelan.io/coelan/internal/cni/relaxed"
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
	os.Exit(run(filepath.Base(os.Args[0]), os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// run is the plugin under a name; it returns the exit code. As ipam-odl it gives addresses to other
// plugins; all other names are one.
func run(name string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	command := getenv("CNI_COMMAND")
	switch command {
	case "":
		fmt.Fprintf(stderr, "%s %s: a CNI plugin, to be run by a container runtime. CNI versions: %s\n",
			name, version.String(), strings.Join(wire.Versions, ", "))
		return 0
	case "VERSION":
		return print(stdout, map[string]any{"cniVersion": wire.LatestVersion, "supportedVersions": wire.Versions})
	}
	conf, answer, err := call(name, command, getenv, stdin, stderr)
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
	// IPAM is read for its type; what is wrong with it the agent says.
	IPAM json.RawMessage `json:"ipam"`
}

// forIPAM are the settings of ipam-odl: all but the version is in ipam, since the other keys are
// those of the plugin that calls it.
func (s settings) forIPAM() settings {
	own := settings{Socket: wire.DefaultSocket}
	if len(s.IPAM) > 0 && json.Unmarshal(s.IPAM, &own) != nil {
		own = settings{Socket: wire.DefaultSocket} // the agent says what is wrong with it
	}
	return settings{CNIVersion: s.CNIVersion, Socket: own.Socket, Timeout: own.Timeout}
}

func (s settings) ipamType() string {
	var ipam struct {
		Type string `json:"type"`
	}
	if len(s.IPAM) == 0 || json.Unmarshal(s.IPAM, &ipam) != nil {
		return ""
	}
	return ipam.Type
}

// call asks the agent. The error is a *wire.Error if it is more than a failure to read.
func call(name, command string, getenv func(string) string, stdin io.Reader, stderr io.Writer) (
	settings, []byte, error,
) {
	conf := settings{Socket: wire.DefaultSocket}
	data, err := io.ReadAll(io.LimitReader(stdin, wire.MaxRequest))
	if err != nil {
		return conf, nil, fmt.Errorf("read the network configuration from standard input: %w", err)
	}
	// What the agent is asked with is what was given: it says what was corrected.
	text, _ := relaxed.JSON(data)
	if err := json.Unmarshal(text, &conf); err != nil {
		return conf, nil, &wire.Error{Code: wire.CodeDecoding, Msg: "network configuration on standard input",
			Details: err.Error()}
	}
	c := caller{path: wire.Path}
	if name == wire.IPAMPlugin {
		c.path = wire.IPAMPath
		conf = conf.forIPAM()
	}
	timeout := defaultTimeout
	if command == "STATUS" {
		timeout = statusTimeout
	}
	if conf.Timeout > 0 {
		timeout = time.Duration(conf.Timeout * float64(time.Second))
	}
	c.socket, c.deadline = conf.Socket, time.Now().Add(timeout)
	c.request = wire.Request{
		Command: command, ContainerID: getenv("CNI_CONTAINERID"), Netns: getenv("CNI_NETNS"),
		IfName: getenv("CNI_IFNAME"), Args: getenv("CNI_ARGS"), Config: data, Delegates: true,
	}
	c.ipam = ipamPlugin{name: conf.ipamType(), getenv: getenv, config: text, stderr: stderr}
	answer, err := c.call()
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

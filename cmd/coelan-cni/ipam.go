// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"coelan.io/coelan/internal/cni/wire"
)

// ipamPlugin is the plugin that ipam.type names: CNI specification, section 4. It is called here
// and not by the agent, because its files are the node's, and so is its PATH. Package invoke of the
// CNI project would do the same, and make every start of this program half as long again.
type ipamPlugin struct {
	name   string
	getenv func(string) string
	config []byte
	stderr io.Writer
}

// killDelay is how long the children of an IPAM plugin that was killed may keep its output open.
const killDelay = time.Second

// run calls the plugin with a command and returns what it prints. Errors are *wire.Error.
func (p ipamPlugin) run(command string, deadline time.Time) ([]byte, error) {
	path, err := p.find()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.environment(command), bytes.NewReader(p.config), &out, p.stderr
	cmd.WaitDelay = killDelay
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, p.failed(wire.CodeTryAgainLater, command, "did not answer in time", p.undo(command))
	case err != nil:
		// What failed with an error of its own has given nothing.
		return nil, p.failure(command, out.Bytes(), err)
	case command == "ADD" && !json.Valid(out.Bytes()):
		return nil, p.failed(wire.CodeFailed, command, "printed what is not JSON",
			fmt.Sprintf("%.200q%s", out.String(), p.undo(command)))
	}
	return out.Bytes(), nil
}

// undo gives back what an ADD may have given. It returns why it cannot, for messages; "" if it has,
// or if the command was not ADD.
func (p ipamPlugin) undo(command string) string {
	if command != "ADD" {
		return ""
	}
	if _, err := p.run("DEL", time.Now().Add(undoTimeout)); err != nil {
		return "; giving the addresses back is left to DEL: " + err.Error()
	}
	return ""
}

// find looks for the plugin in CNI_PATH.
func (p ipamPlugin) find() (string, error) {
	dirs := filepath.SplitList(p.getenv("CNI_PATH"))
	for _, dir := range dirs {
		path := filepath.Join(dir, p.name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", &wire.Error{Code: wire.CodeInvalidEnvironment,
		Msg:     fmt.Sprintf("the IPAM plugin %s of the network configuration is not there", p.name),
		Details: "CNI_PATH: " + strings.Join(dirs, ", ")}
}

// environment is this program's with another command.
func (p ipamPlugin) environment(command string) []string {
	var list []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "CNI_") {
			list = append(list, variable)
		}
	}
	for _, name := range []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH"} {
		if value := p.getenv(name); value != "" {
			list = append(list, name+"="+value)
		}
	}
	return append(list, "CNI_COMMAND="+command)
}

// failure is the error that the plugin printed, or that it printed none.
func (p ipamPlugin) failure(command string, out []byte, err error) error {
	var said wire.Error
	if json.Unmarshal(out, &said) != nil || said.Code == 0 {
		return p.failed(wire.CodeFailed, command, "failed without saying why", fmt.Sprintf("%v: %.200q", err, out))
	}
	return p.failed(said.Code, command, said.Msg, said.Details)
}

func (p ipamPlugin) failed(code uint, command, msg, details string) error {
	return &wire.Error{
		Code: code, Msg: fmt.Sprintf("%s of the IPAM plugin %s: %s", command, p.name, msg), Details: details,
	}
}

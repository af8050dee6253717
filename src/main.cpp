#include "commands/app.h"

int main(int argc, char** argv) {
  return k3::commands::run_app(argc, argv);
}
